/* Parts of a sum: n_in is cut into at most MAX_PARTS runs of whole units of 32 weights, at places that depend on n_in
 * alone.  Each part is summed in order, then the parts are, from 0 on; so any number of workgroups can share a sum
 * and none of its bits depends on how many do.  Included by C and by GLSL. */
#ifndef LAPILLI_PARTS_H
#define LAPILLI_PARTS_H

#define MAX_PARTS 4
#define PART_LEAST 4 /* units; the last part may have fewer */

#define PART_UNITS(n_units) \
	((n_units) > MAX_PARTS * PART_LEAST ? ((n_units) + MAX_PARTS - 1) / MAX_PARTS : PART_LEAST)
#define N_PARTS(n_units) (((n_units) + PART_UNITS(n_units) - 1) / PART_UNITS(n_units))

#endif
