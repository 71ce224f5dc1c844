#include "control/modules.h"

#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct wanted {
    uintptr_t address;
    struct module *module;
    uint64_t offset;
};

static size_t align4(size_t n)
{
    return (n + 3) & ~(size_t)3;
}

static void print_hex(char *to, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n && i < MODULE_BUILD_ID / 2; i++)
        snprintf(to + 2 * i, 3, "%02x", bytes[i]);
}

static void find_build_id(struct module *m, const char *notes, size_t len)
{
    while (len >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) h;
        memcpy(&h, notes, sizeof(h));
        size_t name = sizeof(h), desc = name + align4(h.n_namesz);
        size_t end = desc + align4(h.n_descsz);
        if (end > len)
            return;
        if (h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 && !memcmp(notes + name, "GNU", 4)) {
            print_hex(m->build_id, (const unsigned char *)notes + desc, h.n_descsz);
            return;
        }
        notes += end;
        len -= end;
    }
}

static bool is_in(const struct dl_phdr_info *info, uintptr_t address)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type == PT_LOAD && address - (info->dlpi_addr + h->p_vaddr) < h->p_memsz)
            return true;
    }
    return false;
}

static int on_module(struct dl_phdr_info *info, size_t size, void *ctx)
{
    struct wanted *w = ctx;
    struct module *m = w->module;

    if (!is_in(info, w->address))
        return 0;
    memset(m, 0, sizeof(*m));
    /* The program itself has no name here. */
    if (info->dlpi_name[0])
        snprintf(m->path, sizeof(m->path), "%s", info->dlpi_name);
    else if (readlink("/proc/self/exe", m->path, sizeof(m->path) - 1) < 0)
        snprintf(m->path, sizeof(m->path), "%s", "?");
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type == PT_NOTE && !m->build_id[0])
            find_build_id(m, (const char *)(info->dlpi_addr + h->p_vaddr), h->p_memsz);
    }
    w->offset = w->address - info->dlpi_addr;
    return 1;
}

bool module_of_address(uintptr_t address, struct module *ret_module, uint64_t *ret_offset)
{
    struct wanted w = {.address = address, .module = ret_module};

    if (!dl_iterate_phdr(on_module, &w))
        return false;
    *ret_offset = w.offset;
    return true;
}
