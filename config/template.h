/* Texts with variables in them: "https://${host}${path}". `$$` is a dollar; any other `$` that no
 * `{` follows is one, too. */
#ifndef MILLRACE_CONFIG_TEMPLATE_H
#define MILLRACE_CONFIG_TEMPLATE_H

#include "config/arena.h"
#include "config/duties.h"

#define TEMPLATE_VARIABLES_MAX 8 /* of a template: each may be as long as a request's head */

/* Where a template stands, and so which variables it can have: variable.def. */
enum template_where {
    TEMPLATE_REQUEST = 1,
    TEMPLATE_RESPONSE = 2,
    TEMPLATE_LOCATION = 4,
    TEMPLATE_ANYWHERE = TEMPLATE_REQUEST | TEMPLATE_RESPONSE | TEMPLATE_LOCATION,
};

/* NULL: stored, with everything in `a`. Else what is wrong, in `a` or static. */
const char *template_parse(const char *text, size_t len, enum template_where where, struct arena *a,
                           struct config_template *ret);

/* "`${a}`, `${b}`" of all that may stand there, in `a`. */
const char *template_variables(enum template_where where, struct arena *a);

/* For docs, by number from 1 up to CONFIG_VARIABLES. */
const char *template_variable_name(enum config_variable v);
const char *template_variable_doc(enum config_variable v);
enum template_where template_variable_where(enum config_variable v);

#endif
