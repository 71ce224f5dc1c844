/* config_reference docs|schema         prints the reference
 * config_reference docs|schema FILE    compares FILE with it: 0 the same, 1 not */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "config/reference.h"

static bool is_same(const char *path, const char *text, size_t size)
{
    FILE *f = fopen(path, "r");
    char *found = malloc(size + 1);
    bool same = f && found && fread(found, 1, size + 1, f) == size && !memcmp(found, text, size);

    if (f)
        fclose(f);
    free(found);
    return same;
}

int main(int argc, char **argv)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    bool is_docs = argc > 1 && !strcmp(argv[1], "docs");
    int rc = 0;

    if (argc < 2 || !f)
        return 2;
    rc = is_docs ? config_docs_markdown(f) : config_schema_json(f);
    fclose(f);
    if (!rc && argc > 2) {
        rc = !is_same(argv[2], text, size);
        if (rc)
            fprintf(stderr, "%s is out of date: write it with \"%s %s\"\n", argv[2], argv[0],
                    argv[1]);
    } else if (!rc) {
        fwrite(text, 1, size, stdout);
    }
    free(text);
    return rc != 0;
}
