/* Pieces of GBNF that a schema needs: numbers between two others, and regular expressions within a JSON string. */
#ifndef LAPILLI_SCHEMA_PATTERN_H
#define LAPILLI_SCHEMA_PATTERN_H

#include "base.h"

/* Appends an expression for the decimal digits, without zeros in front, of low <= n <= high.
 * false: out of memory. */
bool digits_between(struct text *e, uint64_t low, uint64_t high);

/* Appends an expression for the texts in which the regular expression (ECMA-262) is found, as they stand between
 * the quotes of a JSON string; the rule `char` must be any one character.  Supported: characters, `.`,
 * classes, \d \D \w \W \s \S \n \r \t \f \v \0 \xHH \uHHHH, groups that are not looked back at, |, * + ?
 * {m} {m,} {m,n} and their lazy forms, and ^ and $ at the ends of the expression's alternatives.
 * false: what is not supported, in wrong[256], and *e is undefined. */
bool pattern_to_gbnf(const char *pattern, size_t n, struct text *e, char *wrong);

#endif
