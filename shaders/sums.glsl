/* Running sums of TILE rows, 4 or 8: SUM(sums, i) is that of row i, a constant. */
#ifndef SUMS
#ifndef TILE
#define TILE 4
#endif
#if TILE == 4
#define SUMS         vec4
#define SUM(sums, i) sums[i]
#else
#define SUMS         mat2x4
#define SUM(sums, i) sums[(i) / 4][(i) % 4]
#endif

float sum_at(vec4 s, uint i)
{
	return s[i];
}

/* (lavapipe would keep a matrix that is indexed in memory.) */
float sum_at(mat2x4 s, uint i)
{
	return sum_at(i < 4 ? s[0] : s[1], i % 4);
}

/* Sum 1 comes to stand where sum 0 was. */
vec4 sums_turned(vec4 s)
{
	return s.yzwx;
}

mat2x4 sums_turned(mat2x4 s)
{
	return mat2x4(s[0].yzw, s[1].x, s[1].yzw, s[0].x);
}
#endif
