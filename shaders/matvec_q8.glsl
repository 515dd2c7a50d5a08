/* The sums of matvec.glsl with x in 8 bits. */
#define X_QUADS (Q8_WORDS / 4) /* of a unit */

vec4 partial_sums(uint first_row, uint first, uint x_at)
{
	uint n_units = args.n_in / UNIT;
	vec4 sums = vec4(0);
	for (uint unit = lane; unit < n_units; unit += n_lanes) {
		x_unit x = x_load(x_at + unit * X_QUADS);
		for (uint r = 0; r < TILE; r++)
			sums[r] += unit_product(w_load(row_begin(first_row, first, r), unit), x);
	}
	return sums;
}

void partial_columns(uint first_row, uint first, uint x_row, uint x_end)
{
	uint n_units = args.n_in / UNIT, at = gl_LocalInvocationIndex;
	columns_begin();
	for (uint row = x_row; row < x_end; row++)
		column_sums[row % COLUMN_SLOTS][at] = vec4(0);
	for (uint unit = lane; unit < n_units; unit += n_lanes) {
		w_unit w[TILE];
		for (uint r = 0; r < TILE; r++)
			w[r] = w_load(row_begin(first_row, first, r), unit);
		for (uint row = x_row; row < x_end; row++) {
			x_unit x = x_load(x_begin(row) + unit * X_QUADS);
			vec4 sum;
			for (uint r = 0; r < TILE; r++)
				sum[r] = unit_product(w[r], x);
			column_sums[row % COLUMN_SLOTS][at] += sum;
		}
	}
	columns_end(x_row, x_end);
}
