/* Intrusive doubly linked list. A list head is itself a node; an unlinked node has next == NULL,
 * so zeroed memory is an unlinked node and list_remove() of one is harmless.
 * Single owner: no function here is safe against another thread. */
#ifndef MILLRACE_RUNTIME_LIST_H
#define MILLRACE_RUNTIME_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list_node {
    struct list_node *next, *prev;
};

#ifndef container_of
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#endif

static inline void list_init(struct list_node *head)
{
    head->next = head->prev = head;
}

static inline bool list_is_empty(const struct list_node *head)
{
    return head->next == head;
}

static inline bool list_is_linked(const struct list_node *n)
{
    return n->next != NULL;
}

static inline void list_insert_after(struct list_node *at, struct list_node *n)
{
    n->prev = at;
    n->next = at->next;
    at->next->prev = n;
    at->next = n;
}

static inline void list_push_head(struct list_node *head, struct list_node *n)
{
    list_insert_after(head, n);
}

/* Asks no neighbour for what is known: the run queue moves by these, thousands of times a pass. */
static inline void list_push_tail(struct list_node *head, struct list_node *n)
{
    struct list_node *last = head->prev;
    n->next = head;
    n->prev = last;
    last->next = n;
    head->prev = n;
}

/* Idempotent; leaves n unlinked. */
static inline void list_remove(struct list_node *n)
{
    if (!n->next)
        return;
    n->prev->next = n->next;
    n->next->prev = n->prev;
    n->next = n->prev = NULL;
}

/* NULL when empty. */
static inline struct list_node *list_first(const struct list_node *head)
{
    return head->next == head ? NULL : head->next;
}

static inline struct list_node *list_last(const struct list_node *head)
{
    return head->prev == head ? NULL : head->prev;
}

static inline struct list_node *list_pop_head(struct list_node *head)
{
    struct list_node *n = head->next;
    if (n == head)
        return NULL;
    struct list_node *next = n->next;
    head->next = next;
    next->prev = head;
    n->next = n->prev = NULL;
    return n;
}

/* Moves all of `from` to the end of `to`; `from` is empty afterwards. */
static inline void list_splice_tail(struct list_node *to, struct list_node *from)
{
    if (list_is_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    list_init(from);
}

#define list_for_each(pos, head)                                                                   \
    for (struct list_node *pos = (head)->next; pos != (head); pos = pos->next)

/* The current node may be removed in the body; its successor may not. */
#define list_for_each_safe(pos, tmp, head)                                                         \
    for (struct list_node *pos = (head)->next, *tmp = pos->next; pos != (head);                    \
         pos = tmp, tmp = pos->next)

#endif
