/* The demo model, models/austen.gguf, as bytes inside the program. */
#ifndef LAPILLI_DEMO_MODEL_H
#define LAPILLI_DEMO_MODEL_H

extern const unsigned char demo_model[]; /* aligned to 64 bytes */
extern const unsigned long long demo_model_bytes;

#endif
