/* What a session keeps on the device: the list of its buffers, said once for those who create them and
 * for those who ask whether they fit (lap_session_memory). */
#ifndef LAPILLI_SESSION_MEMORY_H
#define LAPILLI_SESSION_MEMORY_H

#include "session.h"

/* One buffer of a session. */
struct session_need {
	struct view *view; /* where it belongs */
	uint64_t n_bytes;
	enum memory memory;
	const char *label;
	enum { NEED_SCRATCH, NEED_KV, NEED_STATE } kind;
};

/* Not LAP_OK stops. */
typedef enum lap_status session_need_fn(
	void *user, const struct session_need *need, struct lap_error *err);

/* Sets what sizes follow from, in a zeroed session: model, context, chunk, types, block tables' shapes.
 * s->kv.layers is the caller's to free.  LAP_USAGE for KV types that the heads do not fit;
 * LAP_NO_MEMORY. */
enum lap_status session_shape(struct lap_session *s, struct lap_model *m,
	const struct lap_session_options *options, struct lap_error *err);

/* Hands every buffer of a session with a shape and without buffers to `fn`. */
enum lap_status session_each_buffer(
	struct lap_session *s, session_need_fn *fn, void *user, struct lap_error *err);

/* The largest window of a layer; 0: no layer has one. */
uint32_t model_window(const struct model *m);

/* Whether layers have a state that each position changes. */
bool model_is_recurrent(const struct model *m);

/* Which -c and -ctk/-ctv would fit where these options do not, or how many sequences, for messages.  Returns
 * out. */
#define SESSION_ADVICE_BYTES 256
const char *session_advice(struct lap_model *m, const struct lap_session_options *options,
	char out[SESSION_ADVICE_BYTES]);

#endif
