#version 450
/* to[i] = from[i] + 1 for each invocation; `first` moves the writes. */
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer From { uint from[]; };
layout(binding = 1) writeonly buffer To { uint to[]; };
layout(push_constant) uniform Arguments { uint first; };

void main()
{
	uint i = gl_GlobalInvocationID.x;
	to[first + i] = from[i] + 1;
}
