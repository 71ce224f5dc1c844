#include <stdlib.h>

#include "config/place.h"
#include "control/status_json.h"

json_t *overrides_to_json(const struct config_overrides *o, const struct snapshot *base)
{
    json_t *a = json_array();

    for (size_t i = 0; o && i < o->count; i++) {
        char *configured = config_place_get(base, o->list[i].path);
        json_array_append_new(a, json_pack("{s:s, s:s, s:s*}", "key", o->list[i].path, "value",
                                           o->list[i].value, "configured", configured));
        free(configured);
    }
    return a;
}

json_t *history_to_json(const struct history *h)
{
    json_t *a = json_array();

    for (unsigned i = 0; h && i < h->count; i++) {
        const struct history_entry *e = &h->entries[i];
        json_t *o = json_pack("{s:I, s:I}", "version", (json_int_t)e->version, "taken_at_ms",
                              (json_int_t)(e->taken_at / 1000000));
        if (e->of)
            json_object_set_new(o, "repeats", json_integer((json_int_t)e->of));
        json_array_append_new(a, o);
    }
    return a;
}
