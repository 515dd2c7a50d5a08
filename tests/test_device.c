/* The choice of a device and of memory, on made-up machines (OB-08, OB-10). */
#include <stdio.h>
#include <string.h>

#include "support.h"
#include "vk/choose.h"
#include "vk/device.h"
#include "vk/knob_defaults.h"
#include "vk/memory.h"

#define GIB (1ull << 30)

static struct lap_device make(
	uint32_t index, const char *name, enum lap_device_type type, uint64_t memory_bytes)
{
	struct lap_device d = {.index = index, .type = type, .memory_bytes = memory_bytes};
	snprintf(d.name, sizeof d.name, "%s", name);
	memset(d.uuid, (int)index + 1, sizeof d.uuid);
	return d;
}

static void expect(const struct lap_device *list, uint32_t n, const char *wanted, uint32_t expected)
{
	uint32_t chosen = UINT32_MAX;
	struct lap_error err = {0};
	cr_assert_eq(device_choose(list, n, wanted, &chosen, &err), LAP_OK, "%s", err.text);
	cr_assert_eq(chosen, expected, "\"%s\": %u, expected %u", wanted ? wanted : "", chosen,
		expected);
}

/* The error holds `words` and every device of the list. */
static void expect_none(
	const struct lap_device *list, uint32_t n, const char *wanted, const char *words)
{
	uint32_t chosen = UINT32_MAX;
	struct lap_error err = {0};
	cr_assert_eq(device_choose(list, n, wanted, &chosen, &err), LAP_NO_DEVICE);
	cr_assert_eq(chosen, UINT32_MAX, "left alone");
	cr_assert(strstr(err.text, words), "\"%s\" is not in: %s", words, err.text);
	cr_assert_null(strchr(err.text, '\n'));
	for (uint32_t i = 0; i < n; i++)
		cr_assert(strstr(err.text, list[i].name), "%s", err.text);
}

Test(device, type_before_memory)
{
	struct lap_device cpu =
		make(0, "llvmpipe (LLVM 15.0.6, 256 bits)", LAP_DEVICE_CPU, 64 * GIB);
	struct lap_device list[3] = {cpu};
	expect(list, 1, NULL, 0);
	list[1] = make(1, "Intel(R) Iris(R) Xe Graphics", LAP_DEVICE_INTEGRATED, 32 * GIB);
	expect(list, 2, "", 1);
	list[2] = make(2, "Intel(R) Arc(tm) A380", LAP_DEVICE_DISCRETE, 6 * GIB);
	expect(list, 3, NULL, 2);
	list[0] = make(0, "AMD Radeon 780M", LAP_DEVICE_INTEGRATED, 32 * GIB);
	list[1] = make(1, "AMD Radeon RX 7600", LAP_DEVICE_DISCRETE, 8 * GIB);
	expect(list, 2, NULL, 1);
	list[0] = make(0, "virtio venus", LAP_DEVICE_VIRTUAL, 4 * GIB);
	list[1] = cpu;
	list[1].index = 1;
	expect(list, 2, NULL, 0);
	list[2] = make(2, "odd one", LAP_DEVICE_OTHER, 128 * GIB);
	expect(list, 3, NULL, 0);
	expect(list + 1, 2, NULL, 1);
}

Test(device, memory_inside_a_type)
{
	struct lap_device list[] = {
		make(0, "small", LAP_DEVICE_DISCRETE, 8 * GIB),
		make(1, "large", LAP_DEVICE_DISCRETE, 24 * GIB),
		make(2, "as large", LAP_DEVICE_DISCRETE, 24 * GIB),
	};
	expect(list, 3, NULL, 1);
	snprintf(list[1].refused, sizeof list[1].refused, "older than Vulkan 1.2");
	expect(list, 3, NULL, 2);
}

Test(device, explicit_choice_wins)
{
	struct lap_device list[] = {
		make(0, "NVIDIA GeForce RTX 3090", LAP_DEVICE_DISCRETE, 24 * GIB),
		make(1, "AMD Radeon RX 7900 XTX", LAP_DEVICE_DISCRETE, 24 * GIB),
		make(2, "llvmpipe", LAP_DEVICE_CPU, 2 * GIB),
	};
	expect(list, 3, "2", 2);
	expect(list, 3, "Vulkan2", 2);
	expect(list, 3, "vulkan1", 1);
	expect(list, 3, "LLVMPIPE", 2);
	expect(list, 3, "radeon", 1);
	expect(list, 3, "amd radeon rx 7900 xtx", 1);
	expect(list, 3, "3090", 0); /* no index: a part of a name */
	expect(list, 3, "02020202020202020202020202020202", 1);
	expect(list, 3, "03030303-0303-0303-0303-030303030303", 2);
	expect_none(list, 3, "3", "\"3\""); /* no part of 3090 */
	expect_none(list, 3, "-1", "\"-1\"");
	expect_none(list, 3, "vulkan", "\"vulkan\"");
	expect_none(list, 3, "4294967296", "\"4294967296\"");
	expect_none(list, 3, "RX 6600", "\"RX 6600\"");
	expect_none(list, 3, "05050505050505050505050505050505", "0505");
	expect_none(list, 3, " ", "more than one");
	expect_none(list, 3, "X", "more than one"); /* RTX, XTX */
	expect_none(NULL, 0, NULL, "none");
	expect_none(NULL, 0, "0", "none");
}

Test(device, whole_names_before_parts)
{
	struct lap_device list[] = {
		make(0, "GeForce RTX 3080 Ti", LAP_DEVICE_DISCRETE, 12 * GIB),
		make(1, "GeForce RTX 3080", LAP_DEVICE_DISCRETE, 10 * GIB),
		make(2, "GeForce RTX 3060", LAP_DEVICE_DISCRETE, 12 * GIB),
		make(3, "GeForce RTX 3060", LAP_DEVICE_DISCRETE, 12 * GIB),
	};
	expect(list, 4, "geforce rtx 3080", 1);
	expect_none(list, 4, "rtx 3080", "more than one");
	expect_none(
		list, 4, "geforce rtx 3060", "more than one"); /* two of a kind: take the index */
	expect(list, 4, "3", 3);
}

/* One GPU behind two drivers. */
Test(device, same_uuid_counts_once)
{
	struct lap_device list[] = {
		make(0, "AMD Radeon RX 6800 (driver A)", LAP_DEVICE_DISCRETE, 16 * GIB),
		make(1, "AMD Radeon RX 6800 (driver B)", LAP_DEVICE_DISCRETE, 17 * GIB),
		make(2, "no uuid", LAP_DEVICE_CPU, GIB),
		make(3, "no uuid either", LAP_DEVICE_CPU, GIB),
	};
	memcpy(list[1].uuid, list[0].uuid, sizeof list[0].uuid);
	memset(list[2].uuid, 0, sizeof list[2].uuid);
	memset(list[3].uuid, 0, sizeof list[3].uuid);
	devices_mark_duplicates(list, 4);
	cr_assert(!list[0].refused[0] && !list[2].refused[0] && !list[3].refused[0]);
	cr_assert_str_eq(list[1].refused, "the same device as 0 through another driver");
	expect(list, 4, NULL, 0);
	expect(list, 4, "radeon", 0);
	expect(list, 4, "01010101010101010101010101010101", 0);
	expect(list, 4, "1", 1);
	expect(list, 4, "driver B", 1);

	list[1].refused[0] = '\0'; /* the first driver cannot be used: the second one counts */
	snprintf(list[0].refused, sizeof list[0].refused, "older than Vulkan 1.2");
	devices_mark_duplicates(list, 4);
	cr_assert_str_empty(list[1].refused, "%s", list[1].refused);
	expect(list, 4, NULL, 1);
	expect(list, 4, "01010101-01010101-01010101-01010101", 1);
}

Test(device, refused_ones)
{
	struct lap_device list[] = {
		make(0, "old GPU", LAP_DEVICE_DISCRETE, 8 * GIB),
		make(1, "llvmpipe", LAP_DEVICE_CPU, 2 * GIB),
	};
	snprintf(list[0].refused, sizeof list[0].refused, "no timeline semaphores");
	expect(list, 2, NULL, 1);
	uint32_t chosen;
	struct lap_error err = {0};
	static const char *const names[] = {
		"0", "old", "OLD GPU", "01010101010101010101010101010101"};
	for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
		cr_assert_eq(device_choose(list, 2, names[i], &chosen, &err), LAP_NO_DEVICE);
		cr_assert(strstr(err.text, "old GPU") && strstr(err.text, "no timeline semaphores"),
			"%s", err.text);
	}
	expect_none(list, 1, NULL, "no timeline semaphores");
}

/* ---- what a device must have -------------------------------------------------------------------- */

static const struct device_needs enough = {
	.api_version = VK_API_VERSION_1_2,
	.compute_queue = true,
	.timeline_semaphore = true,
	.storage_range = 128 << 20,
	.shared_bytes = 16 << 10,
	.invocations = 128,
	.storage_buffers = 8,
	.push_bytes = 128,
};

static void expect_lack(struct device_needs has, const char *words)
{
	const char *lacks = device_lacks(&has);
	cr_assert(lacks && strstr(lacks, words), "\"%s\", expected \"%s\"", lacks ? lacks : "",
		words);
}

Test(device, what_is_required)
{
	cr_assert_null(device_lacks(&enough));
	struct device_needs has = enough;
	has.api_version = VK_MAKE_API_VERSION(0, 1, 1, 300);
	expect_lack(has, "1.2");
	has = enough;
	has.compute_queue = false;
	expect_lack(has, "queue");
	has = enough;
	has.timeline_semaphore = false;
	expect_lack(has, "timeline");
	has = enough;
	has.storage_range--;
	expect_lack(has, "128 MiB");
	has = enough;
	has.shared_bytes--;
	expect_lack(has, "16 KiB");
	has = enough;
	has.invocations--;
	expect_lack(has, "128 invocations");
	has = enough;
	has.storage_buffers--;
	expect_lack(has, "8 storage buffers");
	has = enough;
	has.push_bytes--;
	expect_lack(has, "push constants");
}

/* ---- results ------------------------------------------------------------------------------------ */

static VkResult answer(VkResult result, int unused)
{
	(void)unused;
	return result;
}

static enum lap_status call_it(VkResult result, struct lap_error *err)
{
	return VK(answer(result, (1 + 1)));
}

Test(device, results_become_errors)
{
	struct lap_error err = {0};
	cr_assert_eq(call_it(VK_SUCCESS, &err), LAP_OK);
	cr_assert_eq(call_it(VK_ERROR_OUT_OF_DEVICE_MEMORY, &err), LAP_NO_MEMORY);
	cr_assert_str_eq(err.text, "answer: VK_ERROR_OUT_OF_DEVICE_MEMORY (-2)");
	cr_assert_eq(call_it(VK_ERROR_DEVICE_LOST, &err), LAP_DEVICE_LOST);
	cr_assert_eq(call_it(VK_ERROR_INCOMPATIBLE_DRIVER, &err), LAP_NO_DEVICE);
	cr_assert_eq(call_it(VK_ERROR_FEATURE_NOT_PRESENT, &err), LAP_ERROR);
	cr_assert_eq(call_it((VkResult)-12345, NULL), LAP_ERROR);
}

/* ---- memory types ------------------------------------------------------------------------------- */

#define LOCAL   VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
#define VISIBLE (VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)
#define CACHED  VK_MEMORY_PROPERTY_HOST_CACHED_BIT

static void expect_types(const VkPhysicalDeviceMemoryProperties *p, uint32_t allowed,
	enum memory memory, bool shared_heap, const char *expected)
{
	uint32_t types[MAX_MEMORY_TYPES];
	uint32_t n = memory_types_rank(p, allowed, memory, shared_heap, types);
	char found[MAX_MEMORY_TYPES + 1] = "";
	for (uint32_t i = 0; i < n; i++)
		found[i] = (char)('0' + types[i]);
	cr_assert_str_eq(found, expected);
}

/* A discrete card without resizable BAR: 256 MiB of its memory can be mapped, 8 GiB cannot. */
Test(memory, the_big_heap_is_chosen)
{
	VkPhysicalDeviceMemoryProperties p = {
		.memoryHeapCount = 3,
		.memoryHeaps = {{256 << 20, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT},
			{8 * GIB, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}, {16 * GIB, 0}},
		.memoryTypeCount = 4,
		.memoryTypes = {{LOCAL | VISIBLE, 0}, {LOCAL, 1}, {VISIBLE, 2},
			{VISIBLE | CACHED, 2}},
	};
	expect_types(&p, ~0u, MEMORY_DEVICE, false, "10");
	expect_types(&p, ~0u, MEMORY_SHARED, false, "320");
	expect_types(&p, 1u << 2, MEMORY_DEVICE, false, "");
	expect_types(&p, ~(1u << 3), MEMORY_SHARED, false, "20");
}

/* With resizable BAR weights are written directly; the step stays in cached host memory. */
Test(memory, resizable_bar)
{
	VkPhysicalDeviceMemoryProperties p = {
		.memoryHeapCount = 2,
		.memoryHeaps = {{16 * GIB, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}, {32 * GIB, 0}},
		.memoryTypeCount = 4,
		.memoryTypes = {{LOCAL, 0}, {VISIBLE | CACHED, 1}, {LOCAL | VISIBLE, 0},
			{VISIBLE, 1}},
	};
	expect_types(&p, ~0u, MEMORY_DEVICE, false, "20");
	expect_types(&p, ~0u, MEMORY_SHARED, false, "132");
}

/* An integrated GPU with a small carve-out: the rest of the system's memory will do, too. */
Test(memory, integrated)
{
	VkPhysicalDeviceMemoryProperties p = {
		.memoryHeapCount = 2,
		.memoryHeaps = {{512 << 20, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}, {14 * GIB, 0}},
		.memoryTypeCount = 5,
		.memoryTypes = {{LOCAL, 0}, {VISIBLE, 1}, {LOCAL | VISIBLE, 0},
			{VISIBLE | CACHED, 1}, {LOCAL | VISIBLE | CACHED, 0}},
	};
	expect_types(&p, ~0u, MEMORY_DEVICE, true, "24013");
	expect_types(&p, ~0u, MEMORY_SHARED, true, "4231");
}

/* Types that are not for us: protected, lazily allocated, uncached on the device; and memory that is
 * visible but not coherent is not mapped. */
Test(memory, strange_types)
{
	VkPhysicalDeviceMemoryProperties p = {
		.memoryHeapCount = 1,
		.memoryHeaps = {{4 * GIB, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}},
		.memoryTypeCount = 4,
		.memoryTypes = {{LOCAL | VK_MEMORY_PROPERTY_PROTECTED_BIT, 0},
			{LOCAL | VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT, 0},
			{LOCAL | VISIBLE | VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD, 0},
			{LOCAL | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT, 0}},
	};
	expect_types(&p, ~0u, MEMORY_DEVICE, true, "3");
	expect_types(&p, ~0u, MEMORY_SHARED, true, "");
}

/* Matrix units are used where they are worth it, and truly there. */
Test(device, matrices)
{
	const struct {
		enum lap_device_type type;
		uint32_t vendor, subgroup_min;
		const char *driver;
		bool likes;
	} cases[] = {
		{LAP_DEVICE_DISCRETE, 0x10DE, 32, "NVIDIA 570.1", true},
		{LAP_DEVICE_DISCRETE, VENDOR_AMD, 32, "radv Mesa 25.0", true},
		{LAP_DEVICE_DISCRETE, VENDOR_AMD, 32, "AMD proprietary driver 25.1", false},
		{LAP_DEVICE_INTEGRATED, VENDOR_INTEL, 16, "Intel open-source Mesa driver", true},
		{LAP_DEVICE_DISCRETE, VENDOR_INTEL, 8, "Intel open-source Mesa driver", false},
		{LAP_DEVICE_CPU, 0x10005, 8, "llvmpipe Mesa 26.1", false},
	};
	for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
		struct lap_device d = {.type = cases[i].type,
			.vendor_id = cases[i].vendor,
			.subgroup_min = cases[i].subgroup_min};
		snprintf(d.driver, sizeof d.driver, "%s", cases[i].driver);
		cr_expect_eq(device_likes_matrices(&d), cases[i].likes, "%s", d.driver);
	}
}
