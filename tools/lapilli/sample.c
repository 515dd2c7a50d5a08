/* Means, errors and quantiles: see sample.h. */
#include "sample.h"

#include <math.h>
#include <stdlib.h>

void sample_add(struct sample *s, double x)
{
	const double off = x - s->mean;
	s->n++;
	s->mean += off / s->n;
	s->squares += off * (x - s->mean);
}

double sample_error(const struct sample *s)
{
	return s->n > 1 ? sqrt(s->squares / s->n / (s->n - 1)) : 0;
}

bool figures_add(struct figures *f, double x)
{
	if (f->n == f->capacity) {
		const size_t capacity = f->capacity ? 2 * f->capacity : 1024;
		float *values = realloc(f->values, capacity * sizeof *values);
		if (!values)
			return false;
		f->values = values;
		f->capacity = capacity;
	}
	f->values[f->n++] = (float)x;
	sample_add(&f->sample, x);
	return true;
}

static int compare_values(const void *a, const void *b)
{
	const float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

double figures_quantile(struct figures *f, double q)
{
	if (f->n == 0)
		return 0;
	qsort(f->values, f->n, sizeof *f->values, compare_values);
	const double at = q * (double)(f->n - 1);
	const size_t below = (size_t)at, above = below + 1 < f->n ? below + 1 : below;
	const double low = (double)f->values[below];
	return low + (at - (double)below) * ((double)f->values[above] - low);
}

void figures_free(struct figures *f)
{
	free(f->values);
	*f = (struct figures){.values = NULL};
}
