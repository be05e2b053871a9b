#include "subscriptions.h"

#include "ordered_numbers.h"

void subscriptions_clear(struct subscriptions *table) {
    struct subscriptions old = *table;
    memset(table, 0, sizeof *table);
    table->is_ordered = 1;
    table->changes = old.changes + 1;
    for (uint32_t row = 0; row < old.ids.count; row++) Py_XDECREF(old.ids.items[row]);
    for (uint32_t text = 0; text < old.texts.count; text++) Py_XDECREF(old.texts.items[text]);
    for (uint32_t i = 0; i < old.groups.count; i++) FREE_ARRAY(&old.groups.items[i]);
    FREE_ARRAY(&old.rows);
    FREE_ARRAY(&old.ids);
    FREE_ARRAY(&old.numbers);
    FREE_ARRAY(&old.of_slot);
    FREE_ARRAY(&old.groups);
    FREE_ARRAY(&old.free_groups);
    FREE_ARRAY(&old.texts);
    FREE_ARRAY(&old.free_texts);
    free(old.cells);
}

size_t subscriptions_bytes(const struct subscriptions *table) {
    size_t cells = table->cells == NULL ? 0 : (size_t)table->mask + 1;
    size_t bytes = table->rows.room * sizeof *table->rows.items + table->ids.room * sizeof *table->ids.items +
                   table->numbers.room * sizeof *table->numbers.items + cells * sizeof *table->cells +
                   table->groups.room * sizeof *table->groups.items +
                   table->texts.room * sizeof *table->texts.items +
                   ((size_t)table->of_slot.room + table->free_groups.room + table->free_texts.room) * sizeof(uint32_t);
    for (uint32_t i = 0; i < table->groups.count; i++) bytes += table->groups.items[i].room * sizeof(uint32_t);
    return bytes;
}

/* -- the table by id ---------------------------------------------------------------------------------------- */

static int hash_id(PyObject *id, uint32_t *hash) {
    Py_hash_t found = PyObject_Hash(id);
    if (found == -1 && PyErr_Occurred()) return -1;
    *hash = mix((uint64_t)found);
    return 0;
}

/* Find the row of an id: 1, or 0 if there is none, or -1 with an exception. */
static int find_row(struct subscriptions *table, PyObject *id, uint32_t hash, uint32_t *row) {
    uint64_t changes = table->changes;
    for (uint32_t at = hash & table->mask; table->cells != NULL; at = (at + 1) & table->mask) {
        struct row_cell cell = table->cells[at];
        if (cell.row == NONE) break;
        if (cell.hash != hash) continue;
        PyObject *other = Py_NewRef(table->ids.items[cell.row]);
        int is_equal = other == id ? 1 : PyObject_RichCompareBool(other, id, Py_EQ);
        Py_DECREF(other);
        if (is_equal < 0) return -1;
        if (changes != table->changes) return find_row(table, id, hash, row);
        *row = cell.row;
        if (is_equal) return 1;
    }
    return 0;
}

int subscriptions_find(struct subscriptions *table, PyObject *id, uint32_t *hash, uint32_t *row) {
    return hash_id(id, hash) ? -1 : find_row(table, id, *hash, row);
}

static void put_cell(struct row_cell *cells, uint32_t mask, struct row_cell cell) {
    uint32_t at = cell.hash & mask;
    while (cells[at].row != NONE) at = (at + 1) & mask;
    cells[at] = cell;
}

/* Make room for one more cell. */
static int reserve_cell(struct subscriptions *table) {
    uint64_t cells = table->cells == NULL ? 0 : (uint64_t)table->mask + 1;
    if ((uint64_t)(subscriptions_count(table) + 1) * 4 <= cells * 3) return 0;
    uint64_t wanted = cells ? cells * 2 : 16;
    struct row_cell *made = wanted > UINT32_MAX / 2 ? NULL : malloc((size_t)wanted * sizeof *made);
    if (made == NULL) return -1;
    memset(made, 0xff, (size_t)wanted * sizeof *made);
    for (uint64_t i = 0; i < cells; i++) {
        if (table->cells[i].row != NONE) put_cell(made, (uint32_t)wanted - 1, table->cells[i]);
    }
    free(table->cells);
    table->cells = made;
    table->mask = (uint32_t)wanted - 1;
    return 0;
}

static void remove_cell(struct subscriptions *table, uint32_t row, uint32_t hash) {
    uint32_t mask = table->mask, at = hash & mask;
    while (table->cells[at].row != row) at = (at + 1) & mask;
    for (uint32_t next = (at + 1) & mask; table->cells[next].row != NONE; next = (next + 1) & mask) {
        if (((next - table->cells[next].hash) & mask) < ((next - at) & mask)) continue;
        table->cells[at] = table->cells[next];
        at = next;
    }
    table->cells[at].row = NONE;
}

/* -- rows of slots, and texts --------------------------------------------------------------------------------- */

static int reserve_slot(struct subscriptions *table, uint32_t slot) {
    while (table->of_slot.count <= slot) {
        if (PUSH(&table->of_slot, NONE)) return -1;
    }
    return 0;
}

/* Return the rows of a slot, of which there are `*count`. */
static const uint32_t *rows_of(const struct subscriptions *table, uint32_t slot, uint32_t *count) {
    const uint32_t *row = slot < table->of_slot.count ? &table->of_slot.items[slot] : NULL;
    *count = row != NULL && *row != NONE;
    if (*count == 0 || *row < SEVERAL) return row;
    const struct numbers *group = &table->groups.items[*row & ~SEVERAL];
    *count = group->count;
    return group->items;
}

uint32_t subscriptions_of_slot(const struct subscriptions *table, uint32_t slot) {
    uint32_t count;
    (void)rows_of(table, slot, &count);
    return count;
}

/* Make room for another row of a slot: it gets a group if it has one row already. */
static int reserve_row_of(struct subscriptions *table, uint32_t slot) {
    if (reserve_slot(table, slot)) return -1;
    uint32_t row = table->of_slot.items[slot];
    if (row == NONE) return 0;
    if (row >= SEVERAL) {
        struct numbers *group = &table->groups.items[row & ~SEVERAL];
        return RESERVE(group, group->count + 1);
    }
    struct numbers made = {NULL, 0, 0};
    uint32_t number = table->free_groups.count ? POP(&table->free_groups) : table->groups.count;
    if (RESERVE(&made, 2)) return -1;
    (void)PUSH(&made, row); /* has been reserved */
    if (number < table->groups.count)
        table->groups.items[number] = made;
    else if (RESERVE(&table->free_groups, number + 1) || PUSH(&table->groups, made))
        return FREE_ARRAY(&made), -1;
    table->rows.items[row].place = 0;
    table->of_slot.items[slot] = number | SEVERAL;
    return 0;
}

/* Add a row to a slot that has room for it. */
static void link_row(struct subscriptions *table, uint32_t row, uint32_t slot) {
    uint32_t *of_slot = &table->of_slot.items[slot];
    table->rows.items[row].slot = slot;
    if (*of_slot == NONE) {
        *of_slot = row;
        return;
    }
    struct numbers *group = &table->groups.items[*of_slot & ~SEVERAL];
    table->rows.items[row].place = group->count;
    group->items[group->count++] = row;
}

/* Take a row out of its slot, and return how many the slot has left. */
static uint32_t unlink_row(struct subscriptions *table, uint32_t row) {
    struct row *item = &table->rows.items[row];
    uint32_t *of_slot = &table->of_slot.items[item->slot];
    if (*of_slot < SEVERAL) {
        *of_slot = NONE;
        return 0;
    }
    struct numbers *group = &table->groups.items[*of_slot & ~SEVERAL];
    uint32_t last = POP(group);
    group->items[item->place] = last;
    table->rows.items[last].place = item->place;
    uint32_t left = group->count;
    if (left == 0) { /* it keeps its group until then, so that it does not come and go */
        FREE_ARRAY(group);
        (void)PUSH(&table->free_groups, *of_slot & ~SEVERAL); /* has been reserved */
        *of_slot = NONE;
    }
    return left;
}

/* Keep a text, and return its number, NONE for none; -1: memory is out. */
static int keep_text(struct subscriptions *table, PyObject *text, uint32_t *kept) {
    *kept = NONE;
    if (text == Py_None) return 0;
    if (table->free_texts.count)
        *kept = POP(&table->free_texts);
    else if (PUSH(&table->texts, NULL) || RESERVE(&table->free_texts, table->texts.count))
        return -1;
    else
        *kept = table->texts.count - 1;
    table->texts.items[*kept] = Py_NewRef(text);
    return 0;
}

/* Give back a text, which the caller has to release: NULL if there is none. */
static PyObject *drop_text(struct subscriptions *table, uint32_t kept) {
    if (kept == NONE) return NULL;
    PyObject *text = table->texts.items[kept];
    table->texts.items[kept] = NULL;
    (void)PUSH(&table->free_texts, kept); /* has been reserved */
    return text;
}

/* Close the holes between rows. */
static void close_holes(struct subscriptions *table) {
    struct row *rows = table->rows.items;
    uint32_t *moved = malloc((size_t)table->rows.count * sizeof *moved), count = 0;
    if (moved == NULL) return; /* they stay as they are */
    for (uint32_t row = 0; row < table->rows.count; row++) moved[row] = table->ids.items[row] != NULL ? count++ : NONE;
    for (uint32_t row = 0; row < table->rows.count; row++) {
        if (moved[row] == NONE) continue;
        rows[moved[row]] = rows[row];
        table->ids.items[moved[row]] = table->ids.items[row];
        table->numbers.items[moved[row]] = table->numbers.items[row];
    }
    for (uint32_t slot = 0; slot < table->of_slot.count; slot++) {
        uint32_t *row = &table->of_slot.items[slot];
        if (*row < SEVERAL) *row = moved[*row];
    }
    for (uint32_t i = 0; i < table->groups.count; i++) {
        struct numbers *group = &table->groups.items[i];
        for (uint32_t j = 0; j < group->count; j++) group->items[j] = moved[group->items[j]];
    }
    for (uint64_t i = 0; i <= table->mask; i++) {
        if (table->cells[i].row != NONE) table->cells[i].row = moved[table->cells[i].row];
    }
    free(moved);
    table->rows.count = table->ids.count = table->numbers.count = count;
    table->holes = 0;
}

/* -- edits -------------------------------------------------------------------------------------------------- */

int subscriptions_add(struct subscriptions *table, PyObject *id, uint32_t hash, int64_t number, uint32_t slot,
                      PyObject *text) {
    struct row item = {slot, 0, NONE};
    uint32_t row = table->rows.count;
    if (row >= SEVERAL - 1 || reserve_row_of(table, slot) || reserve_cell(table) || RESERVE(&table->rows, row + 1) ||
        RESERVE(&table->ids, row + 1) || RESERVE(&table->numbers, row + 1) || keep_text(table, text, &item.text))
        return -1;
    table->changes++;
    if (row && table->numbers.items[row - 1] > number) table->is_ordered = 0;
    table->rows.items[row] = item;
    table->ids.items[row] = Py_NewRef(id);
    table->numbers.items[row] = number;
    table->rows.count = table->ids.count = table->numbers.count = row + 1;
    put_cell(table->cells, table->mask, (struct row_cell){row, hash});
    link_row(table, row, slot);
    return 0;
}

uint32_t subscriptions_remove(struct subscriptions *table, uint32_t row, uint32_t hash) {
    table->changes++;
    uint32_t left = unlink_row(table, row);
    PyObject *id = table->ids.items[row], *text = drop_text(table, table->rows.items[row].text);
    remove_cell(table, row, hash);
    table->ids.items[row] = NULL;
    if (row + 1 == table->rows.count)
        table->rows.count = table->ids.count = table->numbers.count = row;
    else
        table->holes++;
    if (table->holes > 64 && table->holes > table->rows.count / 2) close_holes(table);
    Py_XDECREF(text); /* these may run any code, so they come last */
    Py_DECREF(id);
    return left;
}

int subscriptions_move(struct subscriptions *table, uint32_t row, uint32_t slot, PyObject *text) {
    uint32_t kept;
    if (reserve_row_of(table, slot) || keep_text(table, text, &kept)) return -1;
    table->changes++;
    unlink_row(table, row);
    link_row(table, row, slot);
    PyObject *before = drop_text(table, table->rows.items[row].text);
    table->rows.items[row].text = kept;
    Py_XDECREF(before);
    return 0;
}

/* -- lists -------------------------------------------------------------------------------------------------- */

struct numbered {
    int64_t number;
    uint32_t row;
};

static int compare_numbered(const void *one, const void *other) {
    int64_t a = ((const struct numbered *)one)->number, b = ((const struct numbered *)other)->number;
    return (a > b) - (a < b);
}

/* Sort rows by their numbers, where that is not the order in which they came. */
static int sort_rows(const struct subscriptions *table, struct numbers *rows) {
    struct numbered *pairs = malloc(((size_t)rows->count + 1) * sizeof *pairs);
    if (pairs == NULL) return -1;
    for (uint32_t i = 0; i < rows->count; i++)
        pairs[i] = (struct numbered){table->numbers.items[rows->items[i]], rows->items[i]};
    qsort(pairs, rows->count, sizeof *pairs, compare_numbered);
    for (uint32_t i = 0; i < rows->count; i++) rows->items[i] = pairs[i].row;
    free(pairs);
    return 0;
}

/* Mark the rows of slots in a bitmap, and return how many there are. */
static uint32_t mark_rows(const struct subscriptions *table, const struct numbers *slots, uint64_t *bits) {
    uint32_t total = 0, limit = table->of_slot.count;
    const uint32_t *of_slot = table->of_slot.items, *slot = slots->items, *end = slots->items + slots->count;
    for (; slot < end; slot++) {
        uint32_t row = *slot < limit ? of_slot[*slot] : NONE, count;
        if (row < SEVERAL) { /* the frequent case */
            bits[row / 64] |= (uint64_t)1 << row % 64;
            total++;
            continue;
        }
        const uint32_t *rows = rows_of(table, *slot, &count);
        for (uint32_t j = 0; j < count; j++) bits[rows[j] / 64] |= (uint64_t)1 << rows[j] % 64;
        total += count;
    }
    return total;
}

static int push_rows(const struct subscriptions *table, const struct numbers *slots, struct numbers *rows) {
    for (uint32_t i = 0; i < slots->count; i++) {
        uint32_t count;
        const uint32_t *found = rows_of(table, slots->items[i], &count);
        if (RESERVE(rows, rows->count + count)) return -1;
        for (uint32_t j = 0; j < count; j++) rows->items[rows->count++] = found[j];
    }
    return order_numbers(rows, table->rows.count);
}

int subscriptions_list(const struct subscriptions *table, const struct numbers *slots, struct numbers *rows) {
    int failed;
    if (are_few(slots->count, table->rows.count)) {
        failed = push_rows(table, slots, rows);
    } else {
        uint64_t *bits = new_bitmap(table->rows.count);
        failed = bits == NULL || RESERVE(rows, mark_rows(table, slots, bits) + AT_ONCE);
        if (!failed) read_bitmap(bits, table->rows.count, rows);
        free(bits);
    }
    return failed || (!table->is_ordered && sort_rows(table, rows)) ? -1 : 0;
}

/* Add the numbers of the rows of a slot that has several. */
static int add_group(const struct subscriptions *table, uint32_t slot, struct subscription_numbers *numbers) {
    uint32_t count;
    const uint32_t *rows = rows_of(table, slot, &count);
    if (count > NONE - 1 - numbers->count || RESERVE(numbers, numbers->count + count)) return -1;
    for (uint32_t i = 0; i < count; i++) numbers->items[numbers->count++] = table->numbers.items[rows[i]];
    return 0;
}

int subscriptions_add_numbers(const struct subscriptions *table, const struct numbers *slots,
                              struct subscription_numbers *numbers) {
    uint32_t limit = table->of_slot.count, done = 0;
    const uint32_t *of_slot = table->of_slot.items;
    const int64_t *of_row = table->numbers.items;
    while (done < slots->count) {
        uint32_t left = slots->count - done;
        if (left > NONE - 1 - numbers->count || RESERVE(numbers, numbers->count + left)) return -1;
        int64_t *next = numbers->items + numbers->count;
        uint32_t row = NONE;
        for (; done < slots->count; done++) {
            uint32_t slot = slots->items[done];
            row = slot < limit ? of_slot[slot] : NONE;
            if (row >= SEVERAL) break; /* the rare case */
            *next++ = of_row[row];
        }
        numbers->count = (uint32_t)(next - numbers->items);
        if (done < slots->count && add_group(table, slots->items[done++], numbers)) return -1;
    }
    return 0;
}

int subscriptions_list_all(const struct subscriptions *table, struct numbers *rows) {
    if (RESERVE(rows, table->rows.count)) return -1;
    for (uint32_t row = 0; row < table->rows.count; row++) {
        if (table->ids.items[row] != NULL) rows->items[rows->count++] = row;
    }
    return table->is_ordered ? 0 : sort_rows(table, rows);
}
