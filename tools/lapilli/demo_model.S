/* Embeds the demo model; the build defines DEMO_MODEL_FILE. */
#ifdef __APPLE__
#define SYMBOL(name) _##name
	.section __TEXT,__const
#else
#define SYMBOL(name) name
	.section .note.GNU-stack,"",%progbits
	.section .rodata
#endif
	.globl SYMBOL(demo_model)
	.globl SYMBOL(demo_model_bytes)
	.balign 64
SYMBOL(demo_model):
	.incbin DEMO_MODEL_FILE
demo_model_end:
	.balign 8
SYMBOL(demo_model_bytes):
	.quad demo_model_end - SYMBOL(demo_model)
