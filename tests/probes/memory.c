/* Deliberate faults in memory: each must be reported by the sanitizer named, although the test that
 * commits it passes.  One of PROBE_LEAK, PROBE_OVERFLOW, PROBE_UNDEFINED is defined. */
#include <criterion/criterion.h>
#include <limits.h>
#include <stdlib.h>

static volatile int sink;

#if defined(PROBE_LEAK)
static char *volatile kept;

Test(probe, memory)
{
	kept = malloc(100);
	kept[0] = 1;
	kept = NULL;
}
#elif defined(PROBE_OVERFLOW)
Test(probe, memory)
{
	volatile size_t n = 100;
	char *bytes = calloc(n, 1);
	sink = bytes[n];
	free(bytes);
}
#else
Test(probe, memory)
{
	volatile int most = INT_MAX;
	sink = most + 1;
}
#endif
