#include "control/budgets.h"

#include <inttypes.h>
#include <string.h>

#include "dataplane/engine.h"

static const char *bytes(uint64_t v, char *buf, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double d = (double)v;
    unsigned u = 0;

    for (; d >= 1024 && u < 4; u++)
        d /= 1024;
    snprintf(buf, size, u && d < 10 ? "%.1f %s" : "%.0f %s", d, units[u]);
    return buf;
}

uint64_t budgets_total(const struct snapshot *s)
{
    struct engine_cost costs[ENGINE_MAX_COSTS];
    unsigned n = engine_costs(s, costs);
    uint64_t sum = 0;

    for (unsigned i = 0; i < n; i++)
        sum += costs[i].count * costs[i].each;
    return sum;
}

uint64_t budgets_available(void)
{
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    uint64_t kib = 0;

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib * 1024;
}

void budgets_print(const struct snapshot *s, FILE *f)
{
    struct engine_cost costs[ENGINE_MAX_COSTS];
    unsigned n = engine_costs(s, costs);
    char each[32], sum[32];

    fprintf(f, "%-32s %10s %10s %10s  %s\n", "MEMORY FOR", "COUNT", "EACH", "TOGETHER", "SETTING");
    for (unsigned i = 0; i < n; i++)
        fprintf(f, "%-32s %10" PRIu64 " %10s %10s  %s\n", costs[i].what, costs[i].count,
                bytes(costs[i].each, each, sizeof(each)),
                bytes(costs[i].count * costs[i].each, sum, sizeof(sum)), costs[i].setting);
    fprintf(f, "%-32s %10s %10s %10s\n", "all", "", "", bytes(budgets_total(s), sum, sizeof(sum)));
}

void budgets_line(const struct snapshot *s, char *buf, size_t size)
{
    struct engine_cost costs[ENGINE_MAX_COSTS];
    unsigned n = engine_costs(s, costs);
    char sum[32];
    size_t len;

    snprintf(buf, size, "memory budget %s:", bytes(budgets_total(s), sum, sizeof(sum)));
    for (unsigned i = 0; i < n; i++) {
        len = strlen(buf);
        snprintf(buf + len, size - len, "%s %s %s", i ? "," : "", costs[i].what,
                 bytes(costs[i].count * costs[i].each, sum, sizeof(sum)));
    }
}
