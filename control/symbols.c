#include "control/symbols.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct function {
    uint64_t from, size;
    size_t name; /* in the section of names */
};

struct symbols {
    int fd;
    Elf *elf;
    size_t names; /* section */
    struct function *functions;
    size_t n;
    char name[256];
};

static int by_address(const void *a, const void *b)
{
    const struct function *x = a, *y = b;

    return x->from < y->from ? -1 : x->from > y->from;
}

static Elf_Scn *find_section(Elf *elf, uint32_t type, GElf_Shdr *ret_header)
{
    for (Elf_Scn *s = NULL; (s = elf_nextscn(elf, s));)
        if (gelf_getshdr(s, ret_header) && ret_header->sh_type == type)
            return s;
    return NULL;
}

static bool has_build_id(const Elf_Data *d, const char *want)
{
    GElf_Nhdr h;
    size_t at = 0, name, desc;

    while (at < d->d_size && (at = gelf_getnote((Elf_Data *)d, at, &h, &name, &desc))) {
        const unsigned char *bytes = (const unsigned char *)d->d_buf + desc;
        char text[3];
        bool same = h.n_type == NT_GNU_BUILD_ID && strlen(want) == 2 * h.n_descsz;
        for (size_t i = 0; same && i < h.n_descsz; i++) {
            snprintf(text, sizeof(text), "%02x", bytes[i]);
            same = memcmp(text, want + 2 * i, 2) == 0;
        }
        if (same)
            return true;
    }
    return false;
}

static bool is_build(Elf *elf, const char *want)
{
    GElf_Shdr h;

    if (!want[0])
        return true;
    for (Elf_Scn *s = NULL; (s = elf_nextscn(elf, s));) {
        const Elf_Data *d;
        if (gelf_getshdr(s, &h) && h.sh_type == SHT_NOTE && (d = elf_getdata(s, NULL)) &&
            has_build_id(d, want))
            return true;
    }
    return false;
}

/* Assembly doesn't always say how long a function is: to the end of its section then. */
static uint64_t size_of(Elf *elf, const GElf_Sym *y)
{
    Elf_Scn *section = y->st_size ? NULL : elf_getscn(elf, y->st_shndx);
    GElf_Shdr h;

    if (!section || !gelf_getshdr(section, &h) || y->st_value < h.sh_addr)
        return y->st_size;
    return h.sh_addr + h.sh_size - y->st_value;
}

static int read_functions(struct symbols *s, uint32_t type)
{
    GElf_Shdr h = {0};
    Elf_Scn *section = find_section(s->elf, type, &h);
    Elf_Data *d = section ? elf_getdata(section, NULL) : NULL;
    size_t n = d && h.sh_entsize ? h.sh_size / h.sh_entsize : 0;

    free(s->functions);
    s->n = 0;
    s->functions = calloc(n ? n : 1, sizeof(*s->functions));
    if (!s->functions)
        return -ENOMEM;
    s->names = h.sh_link;
    for (size_t i = 0; i < n; i++) {
        GElf_Sym y;
        if (!gelf_getsym(d, (int)i, &y) || GELF_ST_TYPE(y.st_info) != STT_FUNC || !y.st_value)
            continue;
        s->functions[s->n++] = (struct function){y.st_value, size_of(s->elf, &y), y.st_name};
    }
    qsort(s->functions, s->n, sizeof(*s->functions), by_address);
    return s->n ? 0 : -ENOENT;
}

static int open_file(struct symbols *s, const char *path, const char *build_id)
{
    s->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (s->fd < 0)
        return -errno;
    s->elf = elf_begin(s->fd, ELF_C_READ_MMAP, NULL);
    if (!s->elf || elf_kind(s->elf) != ELF_K_ELF)
        return -ENOEXEC;
    return is_build(s->elf, build_id) ? 0 : -ESTALE;
}

static void close_file(struct symbols *s)
{
    if (s->elf)
        elf_end(s->elf);
    if (s->fd >= 0)
        close(s->fd);
    s->elf = NULL;
    s->fd = -1;
}

/* The file with what was stripped off. */
static int open_debug(struct symbols *s, const char *build_id)
{
    char path[256];

    if (strlen(build_id) < 3)
        return -ENOENT;
    snprintf(path, sizeof(path), "/usr/lib/debug/.build-id/%.2s/%s.debug", build_id, build_id + 2);
    close_file(s);
    int e = open_file(s, path, build_id);
    return e ? e : read_functions(s, SHT_SYMTAB);
}

int symbols_open(const char *path, const char *build_id, struct symbols **ret_symbols)
{
    struct symbols *s = calloc(1, sizeof(*s));
    int e;

    if (!s)
        return -ENOMEM;
    s->fd = -1;
    elf_version(EV_CURRENT);
    e = open_file(s, path, build_id);
    if (!e)
        e = read_functions(s, SHT_SYMTAB);
    if (e == -ENOENT)
        e = open_debug(s, build_id);
    if (e == -ENOENT) { /* what it exports is better than nothing */
        close_file(s);
        e = open_file(s, path, build_id);
        if (!e)
            e = read_functions(s, SHT_DYNSYM);
    }
    if (e) {
        symbols_close(s);
        return e;
    }
    *ret_symbols = s;
    return 0;
}

void symbols_close(struct symbols *s)
{
    if (!s)
        return;
    close_file(s);
    free(s->functions);
    free(s);
}

/* The last that begins at or before `offset`. */
static const struct function *last_before(const struct symbols *s, uint64_t offset)
{
    size_t low = 0, high = s->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->functions[middle].from <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? &s->functions[low - 1] : NULL;
}

const char *symbols_find(struct symbols *s, uint64_t offset, uint64_t *ret_into)
{
    const struct function *f = last_before(s, offset);

    if (!f || offset - f->from >= f->size)
        return NULL;
    const char *name = elf_strptr(s->elf, s->names, f->name);
    if (!name || !*name)
        return NULL;
    *ret_into = offset - f->from;
    snprintf(s->name, sizeof(s->name), "%.*s", (int)strcspn(name, ".@"), name);
    return s->name;
}
