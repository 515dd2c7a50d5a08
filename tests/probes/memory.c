/* Deliberate faults in memory: each must be reported by the sanitizer named, although the test that
 * commits it passes.  One of PROBE_LEAK, PROBE_OVERFLOW, PROBE_UNDEFINED, PROBE_RACE is defined. */
#include <criterion/criterion.h>
#include <limits.h>
#include <pthread.h>
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
#elif defined(PROBE_UNDEFINED)
Test(probe, memory)
{
	volatile int most = INT_MAX;
	sink = most + 1;
}
#else
static int shared;

static void *touch(void *unused)
{
	for (int i = 0; i < 1000; i++)
		shared++;
	return unused;
}

Test(probe, memory)
{
	pthread_t thread;
	cr_assert_eq(pthread_create(&thread, NULL, touch, NULL), 0);
	touch(NULL);
	pthread_join(thread, NULL);
	sink = shared;
}
#endif
