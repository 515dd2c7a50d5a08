/* A deliberate race, which ThreadSanitizer must report: check-threads. */
#include <pthread.h>
#include <stddef.h>

static int shared;

static void *touch(void *unused)
{
	for (int i = 0; i < 1000; i++)
		shared++;
	return unused;
}

int main(void)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, touch, NULL))
		return 1;
	touch(NULL);
	pthread_join(thread, NULL);
	return shared ? 0 : 1;
}
