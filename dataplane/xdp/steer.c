#include "dataplane/xdp/steer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "steer.skel.h"

struct steer {
    struct steer_bpf *skel;
    struct bpf_link *link; /* NULL: not attached */
};

static int steer_add_addr(struct steer *s, uint32_t addr)
{
    uint8_t one = 1;
    return bpf_map__update_elem(s->skel->maps.addrs, &addr, sizeof(addr), &one, sizeof(one),
                                BPF_ANY);
}

int steer_new(const struct config_addr *addrs, size_t naddrs, struct steer **ret_steer)
{
    struct steer *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->skel = steer_bpf__open_and_load();
    if (!s->skel) {
        int rc = errno ? -errno : -EINVAL;
        free(s);
        return rc;
    }
    for (size_t i = 0; i < naddrs; i++) {
        int rc = steer_add_addr(s, addrs[i].addr);
        if (rc) {
            steer_free(s);
            return rc;
        }
    }
    *ret_steer = s;
    return 0;
}

void steer_free(struct steer *s)
{
    if (!s)
        return;
    steer_detach(s);
    steer_bpf__destroy(s->skel);
    free(s);
}

int steer_set_socket(struct steer *s, uint32_t queue, int fd)
{
    return bpf_map__update_elem(s->skel->maps.xsks_map, &queue, sizeof(queue), &fd, sizeof(fd),
                                BPF_ANY);
}

int steer_attach(struct steer *s, unsigned ifindex)
{
    struct bpf_link *link = bpf_program__attach_xdp(s->skel->progs.millrace_steer, (int)ifindex);
    if (!link)
        return errno ? -errno : -EINVAL;
    s->link = link;
    return 0;
}

void steer_detach(struct steer *s)
{
    bpf_link__destroy(s->link);
    s->link = NULL;
}

void steer_counters(const struct steer *s, uint64_t ret_counts[STEER_VERDICTS])
{
    int ncpus = libbpf_num_possible_cpus();
    memset(ret_counts, 0, STEER_VERDICTS * sizeof(*ret_counts));
    uint64_t *per_cpu = ncpus > 0 ? calloc((size_t)ncpus, sizeof(*per_cpu)) : NULL;
    if (!per_cpu)
        return;
    for (uint32_t v = 0; v < STEER_VERDICTS; v++) {
        if (bpf_map__lookup_elem(s->skel->maps.verdicts, &v, sizeof(v), per_cpu,
                                 (size_t)ncpus * sizeof(*per_cpu), 0))
            continue;
        for (int i = 0; i < ncpus; i++)
            ret_counts[v] += per_cpu[i];
    }
    free(per_cpu);
}

int steer_prog_fd(const struct steer *s)
{
    return bpf_program__fd(s->skel->progs.millrace_steer);
}

int steer_object_fd(void)
{
    size_t size;
    const char *elf = steer_bpf__elf_bytes(&size);
    int fd = memfd_create(STEER_PROG_NAME, MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    for (size_t done = 0; done < size;) {
        ssize_t n = write(fd, elf + done, size - done);
        if (n < 0) {
            int rc = -errno;
            close(fd);
            return rc;
        }
        done += (size_t)n;
    }
    return fd;
}

/* The program's name; "" when it has gone meanwhile. */
static void steer_prog_name(uint32_t id, char ret_name[16])
{
    struct bpf_prog_info info = {0};
    uint32_t len = sizeof(info);
    ret_name[0] = '\0';
    int fd = bpf_prog_get_fd_by_id(id);
    if (fd < 0)
        return;
    if (!bpf_obj_get_info_by_fd(fd, &info, &len))
        memcpy(ret_name, info.name, 16);
    close(fd);
}

int steer_remove_leftover(unsigned ifindex, char ret_name[16])
{
    uint32_t id = 0;
    int rc = bpf_xdp_query_id((int)ifindex, 0, &id);
    if (rc || !id)
        return rc;
    steer_prog_name(id, ret_name);
    if (ret_name[0] && strcmp(ret_name, STEER_PROG_NAME) != 0)
        return -EBUSY;
    return bpf_xdp_detach((int)ifindex, 0, NULL);
}
