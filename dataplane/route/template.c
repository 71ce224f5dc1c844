#include "dataplane/route/template.h"

struct piece {
    const char *text;
    size_t len;
};

static struct piece piece(const char *text)
{
    return (struct piece){text, strlen(text)};
}

static struct piece span(const struct http_head *h, struct http_span s)
{
    return (struct piece){http_head_at(h, s), s.len};
}

/* The "?" stands in front of the query in the head's bytes. */
static struct piece query(const struct http_head *h)
{
    if (!h->has_query)
        return piece("");
    return (struct piece){http_head_at(h, h->query) - 1, h->query.len + 1};
}

static struct piece rest(const struct template_vars *v)
{
    return (struct piece){v->key->path + v->prefix_len, v->key->path_len - v->prefix_len};
}

static struct piece value_of(enum config_variable var, const struct template_vars *v)
{
    switch (var) {
    case CONFIG_VAR_client_ip:
        return piece(v->client_ip);
    case CONFIG_VAR_listener:
        return piece(v->listener);
    case CONFIG_VAR_request_id:
        return piece(v->request_id);
    case CONFIG_VAR_scheme:
        return piece(v->https ? "https" : "http");
    case CONFIG_VAR_method:
        return span(v->head, v->head->method_text);
    case CONFIG_VAR_host:
        return (struct piece){v->key->host.name, v->key->host.len};
    case CONFIG_VAR_path:
        return (struct piece){v->key->path, v->key->path_len};
    case CONFIG_VAR_query:
        return query(v->head);
    case CONFIG_VAR_rest:
        return rest(v);
    case CONFIG_VAR_none:
    case CONFIG_VARIABLES:
        break;
    }
    return piece("");
}

/* `root`: only a "/" has been written so far. */
static void put(struct h1_writer *w, struct piece p, bool *root)
{
    while (*root && p.len && *p.text == '/') {
        p.text++;
        p.len--;
    }
    *root &= p.len == 0;
    h1_put(w, p.text, p.len);
}

static void put_parts(struct h1_writer *w, const struct config_template *t,
                      const struct template_vars *v, bool root)
{
    for (uint32_t i = 0; i < t->nparts; i++) {
        const struct config_part *part = &t->parts[i];
        put(w, (struct piece){part->text, part->len}, &root);
        put(w, value_of(part->variable, v), &root);
    }
}

void template_put(struct h1_writer *w, const struct config_template *t,
                  const struct template_vars *v)
{
    put_parts(w, t, v, false);
}

void template_put_location(struct h1_writer *w, const struct config_template *t,
                           const struct template_vars *v)
{
    bool is_path = t->nparts && (t->parts[0].len ? t->parts[0].text[0] == '/'
                                                 : t->parts[0].variable == CONFIG_VAR_path);
    if (is_path)
        H1_PUT(w, "/");
    put_parts(w, t, v, is_path);
}
