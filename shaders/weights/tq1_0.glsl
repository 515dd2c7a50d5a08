/* TQ1_0: 54 bytes for 256 weights: 32 bytes of 5 ternary digits, 16 bytes of 5, 4 bytes of 4, f16 scale;
 * of value 1 too much.  A byte holds its digits as a fraction of 256, rounded up; each array gives the
 * first digits of all its bytes, then the second ones.  A block begins at any even byte. */

/* The top digits of 4 bytes after k digits have been taken. */
uint ternary_digits(uint word, uint k)
{
	uint power = k == 0 ? 1 : k == 1 ? 3 : k == 2 ? 9 : k == 3 ? 27 : 81;
	uint even = (word & 0x00FF00FFu) * power & 0x00FF00FFu;
	uint odd = (word >> 8 & 0x00FF00FFu) * power & 0x00FF00FFu;
	return even * 3 >> 8 & 0x00FF00FFu | odd * 3 & 0xFF00FF00u;
}

void weight_decode(uint row_byte, uint unit, out vec4 w[8])
{
	uint block = row_byte + 54 * (unit / 8), u = unit % 8;
	float d = half_to_float(half_at(block + 52));
	for (uint i = 0; i < 8; i++) {
		/* Units 0 to 4 are digits of the 32 bytes; 5, 6 and half of 7 of the 16 bytes. */
		uint byte = 4 * i, k = u;
		if (u > 4) {
			byte = 32 + 4 * (i % 4);
			k = 2 * (u - 5) + i / 4;
		}
		if (k > 4) {
			byte = 48;
			k = i % 4;
		}
		w[i] = (bytes(ternary_digits(word_at(block + byte), k)) - 1) * d;
	}
}
