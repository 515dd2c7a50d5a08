/* Preloaded into sanitized suites: libraries stay mapped, so that LeakSanitizer can say whose a leak is
 * when the Vulkan loader has unloaded the driver that made it. */
int dlclose(void *library);

int dlclose(void *library)
{
	(void)library;
	return 0;
}
