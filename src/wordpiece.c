/* Characters of WordPiece by tables of Unicode 14.  See wordpiece.h. */
#include "wordpiece.h"

#include <stdlib.h>

enum character {
	LETTER, /* whatever no row names */
	DROPPED,
	SPACE,
	ALONE,
};

struct class_range {
	uint32_t first, last;
	enum character class;
};

/* Characters first to last become letters[offset] and on. */
struct letter_range {
	uint32_t first, last;
	uint32_t offset;
};

#include "wordpiece_table.h"

static int range_compare(const void *key, const void *row)
{
	uint32_t code = *(const uint32_t *)key;
	const uint32_t *bounds = row; /* both kinds of rows begin with them */
	return code < bounds[0] ? -1 : code > bounds[1];
}

static enum character character_of(uint32_t code)
{
	const struct class_range *row =
		bsearch(&code, classes, ARRAY_COUNT(classes), sizeof classes[0], range_compare);
	return row ? row->class : LETTER;
}

static uint32_t letter_of(uint32_t code)
{
	enum { FIRST_SYLLABLE = 0xAC00, LAST_SYLLABLE = 0xD7A3, FIRST_JAMO = 0x1100, N_REST = 588 };
	if (code >= FIRST_SYLLABLE && code <= LAST_SYLLABLE)
		return FIRST_JAMO + (code - FIRST_SYLLABLE) / N_REST;
	const struct letter_range *row =
		bsearch(&code, ranges, ARRAY_COUNT(ranges), sizeof ranges[0], range_compare);
	return row ? letters[row->offset + (code - row->first)] : code;
}

bool wordpiece_words(const char *text, size_t n_bytes, struct text *out)
{
	bool ok = true, in_word = false;
	for (size_t at = 0; at < n_bytes && ok;) {
		uint32_t code;
		unsigned n = utf8_decode(text + at, n_bytes - at, &code);
		at += n ? n : 1;
		enum character class = n ? character_of(code) : DROPPED;
		if (class == SPACE)
			in_word = false;
		if (class == SPACE || class == DROPPED)
			continue;
		char letter[5] = " ";
		unsigned n_letter = utf8_encode(letter_of(code), letter + 1);
		bool begins = class == ALONE || !in_word;
		ok = text_append(out, begins ? letter : letter + 1, n_letter + begins);
		in_word = class == LETTER;
	}
	return ok;
}
