/* Figures of many tokens: their mean, how sure it is, and where the rarest lie. */
#ifndef LAPILLI_SAMPLE_H
#define LAPILLI_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>

/* Zeroed is empty. */
struct sample {
	double n, mean,
		squares; /* squares: of the distances from the mean, summed (Welford 1962) */
};

void sample_add(struct sample *s, double x);

/* Standard error of the mean, as of independent figures: sqrt(variance / n); 0 below two. */
double sample_error(const struct sample *s);

/* A sample that keeps its figures. Zeroed is empty; release with figures_free. */
struct figures {
	struct sample sample;
	float *values;
	size_t n, capacity;
};

bool figures_add(struct figures *f, double x); /* false: out of memory */

/* The value that the share q of the figures, from 0 to 1, does not exceed, between two of them on the line
 * that joins them; puts them in order. 0 when there are none. */
double figures_quantile(struct figures *f, double q);
void figures_free(struct figures *f);

#endif
