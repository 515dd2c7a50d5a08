/* The kernels in plain C: what every shader is measured against.
 *
 * Each takes an op (operands and arguments as shaders/args.h describes them) and the step, whose rows
 * follow its header in memory.  Sums run in double, results are stored as float.  Nothing here can
 * fail or allocate; shapes were checked when the plan was built. */
#ifndef LAPILLI_CPU_KERNELS_H
#define LAPILLI_CPU_KERNELS_H

#include "plan.h"

typedef void cpu_kernel_fn(const struct op *op, const struct step_header *step);

/* cpu_embed, cpu_rmsnorm, ...: one per row of kernels.def. */
#define KERNEL(name, per_weight, written, all, outputs, rows, args) cpu_kernel_fn cpu_##name;
#define VARIANT(kernel, variant, define)
#include "kernels.def"
#undef KERNEL
#undef VARIANT

extern cpu_kernel_fn *const cpu_kernels[N_KERNELS];

/* The bytes of a view of a buffer of the CPU backend. */
void *cpu_pointer(const struct view *v);

#endif
