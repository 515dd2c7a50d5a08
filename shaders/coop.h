/* What builds with LP_COOPMAT need and C knows, too: extensions, and the numbers of a device's matrices. */
#ifndef LAPILLI_COOP_H
#define LAPILLI_COOP_H

#ifdef LP_COOPMAT
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#endif

/* constant_ids, behind those of knobs: the sides of the matrices, and the lanes of a subgroup */
#define COOP_M_ID     10
#define COOP_N_ID     11
#define COOP_K_ID     12
#define COOP_LANES_ID 13

#endif
