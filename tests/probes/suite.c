/* Suites that Criterion calls a success and run-suite must not, and a skip that must be counted.  One
 * of PROBE_EMPTY, PROBE_SKIP, PROBE_FAIL, PROBE_CRASH, PROBE_HANG is defined. */
#include <criterion/criterion.h>
#include <signal.h>
#include <unistd.h>

#include "support.h"

#if defined(PROBE_SKIP)
Test(probe, suite)
{
	SKIP_WITHOUT("no/such/file");
}
#elif defined(PROBE_FAIL)
Test(probe, suite)
{
	cr_assert(0, "as it should");
}
#elif defined(PROBE_CRASH)
Test(probe, suite)
{
	raise(SIGSEGV);
}
#elif defined(PROBE_HANG)
Test(probe, suite)
{
	for (;;)
		pause();
}
#endif
