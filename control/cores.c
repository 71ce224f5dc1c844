#include "control/cores.h"

static void on_post(void *ctx, unsigned core, struct core_msg *m)
{
    core_post(engine_core(ctx, core), m);
}

static bool on_is_running(void *ctx, unsigned core)
{
    return engine_core_is_running(ctx, core);
}

static uint64_t on_acked(void *ctx, unsigned core)
{
    return core_acked_version(engine_core(ctx, core));
}

static bool on_has_released(void *ctx, unsigned core, uint64_t version)
{
    return core_has_released(engine_core(ctx, core), version);
}

static uint64_t on_passes(void *ctx, unsigned core)
{
    return core_passes(engine_core(ctx, core));
}

static const char *on_activity(void *ctx, unsigned core)
{
    return core_activity(engine_core(ctx, core));
}

static const struct stall_ring *on_stalls(void *ctx, unsigned core)
{
    return core_stalls(engine_core(ctx, core));
}

static int on_prepare(void *ctx, struct snapshot *s, char *err, size_t err_len)
{
    return core_prepare(engine_shared(ctx), s, err, err_len);
}

static void on_publish(void *ctx, struct snapshot *s)
{
    core_publish(engine_shared(ctx), s);
}

static const struct cores_ops engine_cores = {
    .post = on_post,
    .is_running = on_is_running,
    .acked = on_acked,
    .has_released = on_has_released,
    .passes = on_passes,
    .activity = on_activity,
    .stalls = on_stalls,
    .prepare = on_prepare,
    .publish = on_publish,
};

struct cores cores_of_engine(struct engine *e)
{
    return (struct cores){.ops = &engine_cores, .ctx = e, .n = engine_ncores(e)};
}
