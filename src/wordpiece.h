/* Text to the words of WordPiece (Devlin et al. 2019): small letters without accents.
 *
 * Owns what Unicode says about characters there: which are dropped, which stand alone, which small
 * base letter each has.  Knows no vocabulary. */
#ifndef LAPILLI_WORDPIECE_H
#define LAPILLI_WORDPIECE_H

#include "base.h"

/* Appends the words of text[n_bytes] to *out, a space in front of each; false: out of memory.
 * - White_Space ends a word.  Punctuation, the symbols of ASCII and Chinese characters are words of
 *   one character.
 * - A character becomes the first of its canonical decomposition (of a Hangul syllable, its first
 *   letter: so the files' usual engine does it), and that its small letter.
 * - Marks, control and format characters, private ones, U+0000, U+FFFD and bytes that are no UTF-8
 *   vanish. */
bool wordpiece_words(const char *text, size_t n_bytes, struct text *out);

#endif
