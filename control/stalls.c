#include "control/stalls.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/modules.h"

static json_t *number(uint64_t v)
{
    return json_integer((json_int_t)v);
}

/* A module's place in the list, where it is put when new. */
static size_t place_of(json_t *modules, const struct module *m)
{
    size_t n = json_array_size(modules);

    for (size_t i = 0; i < n; i++)
        if (strcmp(json_string_value(json_object_get(json_array_get(modules, i), "path")),
                   m->path) == 0)
            return i;
    json_array_append_new(modules,
                          json_pack("{s:s, s:s}", "path", m->path, "build_id", m->build_id));
    return n;
}

static json_t *frame_to_json(json_t *modules, uintptr_t at)
{
    struct module m;
    uint64_t offset;

    if (!module_of_address(at, &m, &offset))
        return json_pack("{s:n, s:o}", "module", "offset", number(at));
    return json_pack("{s:o, s:o}", "module", number(place_of(modules, &m)), "offset",
                     number(offset));
}

static json_t *record_to_json(json_t *modules, const struct stall_record *r, uint64_t now,
                              int64_t wall_offset)
{
    json_t *frames = json_array();

    for (unsigned i = 0; i < r->nframes; i++)
        json_array_append_new(frames, frame_to_json(modules, r->frames[i]));
    /* One that runs goes on: `ns` is as of the moment when it was sampled. */
    uint64_t age = now > r->at ? now - r->at : 0, took = r->running && age > r->ns ? age : r->ns;
    return json_pack("{s:o, s:o, s:o, s:b, s:s, s:s?, s:o}", "unix_ns",
                     number(r->at + (uint64_t)wall_offset), "ago_ns", number(age), "took_ns",
                     number(took), "running", r->running, "kind", r->kind, "label",
                     r->label[0] ? r->label : NULL, "frames", frames);
}

static json_t *core_to_json(const struct cores *cores, unsigned i, json_t *modules, uint64_t now,
                            int64_t wall_offset)
{
    const struct stall_ring *ring = cores->ops->stalls(cores->ctx, i);
    struct stall_record *records = calloc(STALL_RING_SIZE, sizeof(*records));
    unsigned n = records ? stall_read(ring, records, STALL_RING_SIZE) : 0;
    json_t *list = json_array();

    for (unsigned k = 0; k < n; k++)
        json_array_append_new(list, record_to_json(modules, &records[k], now, wall_offset));
    free(records);
    return json_pack("{s:i, s:o, s:o}", "core", (int)i, "recorded", number(stall_count(ring)),
                     "stalls", list);
}

json_t *stalls_to_json(const struct cores *cores, uint64_t now_ns, int64_t wall_offset)
{
    json_t *modules = json_array(), *list = json_array();

    for (unsigned i = 0; i < cores->n; i++)
        json_array_append_new(list, core_to_json(cores, i, modules, now_ns, wall_offset));
    return json_pack("{s:i, s:o, s:o}", "pid", (int)getpid(), "modules", modules, "cores", list);
}

void stalls_frames_line(const struct stall_record *r, char *ret_line, size_t len)
{
    size_t used = 0;

    for (unsigned i = 0; i < r->nframes && used < len; i++) {
        struct module m = {.path = "?"};
        uint64_t offset = r->frames[i];
        module_of_address(r->frames[i], &m, &offset);
        const char *slash = strrchr(m.path, '/');
        int n = snprintf(ret_line + used, len - used, "%s%s+0x%" PRIx64, i ? " " : "",
                         slash ? slash + 1 : m.path, offset);
        used += n > 0 ? (size_t)n : 0;
    }
}
