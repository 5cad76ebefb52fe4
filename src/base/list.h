/* base/list.h: an intrusive, doubly linked, circular list. Not thread-safe. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next;
	struct list *prev;
};

#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#define LIST_FOR_EACH(it, head) for (struct list *it = (head)->next; it != (head); it = it->next)
/* The current entry may be removed in the body. */
#define LIST_FOR_EACH_SAFE(it, head)                                              \
	for (struct list *it = (head)->next, *it##_next = it->next; it != (head); \
		it = it##_next, it##_next = it->next)

static inline void list_init(struct list *head)
{
	head->next = head;
	head->prev = head;
}

static inline bool list_empty(const struct list *head)
{
	return head->next == head;
}

static inline void list_push_back(struct list *head, struct list *entry)
{
	entry->next = head;
	entry->prev = head->prev;
	head->prev->next = entry;
	head->prev = entry;
}

static inline void list_push_front(struct list *head, struct list *entry)
{
	list_push_back(head->next, entry);
}

/* Leaves the entry pointing at itself, so that removing it twice is harmless. */
static inline void list_remove(struct list *entry)
{
	entry->prev->next = entry->next;
	entry->next->prev = entry->prev;
	list_init(entry);
}

/* The first entry, removed; NULL when the list is empty. */
static inline struct list *list_pop(struct list *head)
{
	struct list *entry = head->next;

	if (entry == head)
		return NULL;
	list_remove(entry);
	return entry;
}

#endif
