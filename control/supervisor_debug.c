#include <stdlib.h>
#include <string.h>

#include "control/supervisor_impl.h"
#include "dataplane/misbehave.h"

struct order {
    struct core_msg msg;
    struct misbehaviour misbehaviour;
};

static void on_begun(struct core_msg *m)
{
    (void)m;
}

static void on_finished(struct misbehaviour *m)
{
    free(container_of(m, struct order, misbehaviour));
}

void supervisor_misbehave(struct supervisor *s, const struct admin_call *call,
                          struct admin_request *r)
{
    uint64_t core = 0, ms = 0;
    struct order *o = calloc(1, sizeof(*o));

    admin_number(call, "core", &core);
    admin_number(call, "ms", &ms);
    if (!o || core >= s->cores.n || !cores_is_running(&s->cores, (unsigned)core)) {
        admin_refuse(r, o ? "no such core" : "out of memory", NULL);
        free(o);
        return;
    }
    o->misbehaviour.ns = ms * 1000000;
    o->misbehaviour.sleeps = strcmp(admin_text(call, "how"), "sleep") == 0;
    o->misbehaviour.label = "on purpose";
    o->misbehaviour.finished = on_finished;
    o->msg.kind = CORE_MSG_MISBEHAVE;
    o->msg.misbehaviour = &o->misbehaviour;
    o->msg.done = on_begun;
    cores_post(&s->cores, (unsigned)core, &o->msg);
    admin_reply(r, json_pack("{s:I}", "core", (json_int_t)core));
}
