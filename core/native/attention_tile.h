// What a few rows of attention get from one segment of keys.
//
// A row is one head's query of one token. Rows beside each other are computed together, since the registers then hold
// enough sums to keep both multipliers busy; each row is nevertheless the same operations in the same order as alone:
// a score adds up along the head, a sum of values along the keys that the row sees, and no operation mixes rows.
#pragma once

#include <algorithm>
#include <limits>
#include <type_traits>

#include "lanes.h"
#include "range.h"

namespace sluicegate {

constexpr int kSegment = 256;
constexpr int kGroups = kSegment / kLanes;
constexpr int kQueryRows = 6;
constexpr int kMostColumns = 4;

// So many registers of columns beside so many rows leave some for the columns themselves and a factor.
constexpr int columns_beside(int rows) { return kLanes == 16 || rows <= 2 ? kMostColumns : rows <= 4 ? 3 : 2; }

// A group of keys is kLanes of them.
inline Range groups_of(Range keys) { return {keys.first / kLanes, (keys.end + kLanes - 1) / kLanes}; }

// Where each group of a segment's keys and their values are. The pointers behind the last one are only prefetched from.
template <typename Element>
struct SegmentPlaces {
    const Element* keys[kGroups + kMostColumns];
    const Element* values[kGroups];
};

// What a row gets from a segment, or from several, is a part: kLanes times the largest score, kLanes times the sum of
// the weights e^(score - largest), and the sum of the values with these weights.
constexpr int kPartHead = 2 * kLanes;

inline int part_size(int head_size) { return kPartHead + head_size; }

// The part of a row that saw nothing yet.
inline void clear_part(float* part, int head_size) {
    std::fill_n(part, part_size(head_size), 0.0f);
    Lanes::all(std::numeric_limits<float>::lowest()).store(part);
}

inline void add_part(float* total, const float* part, int head_size) {
    Lanes before = Lanes::load(total), after = Lanes::load(part), largest = before.max(after);
    Lanes total_factor = exponential(before - largest), part_factor = exponential(after - largest);
    largest.store(total);
    for (int i = kLanes; i < part_size(head_size); i += kLanes) {
        Lanes::load(part + i).times_plus(part_factor, Lanes::load(total + i) * total_factor).store(total + i);
    }
}

inline void store_attended(const float* total, int head_size, float* attended) {
    for (int i = 0; i < head_size; i += kLanes) {
        (Lanes::load(total + kPartHead + i) / Lanes::load(total + kLanes)).store(attended + i);
    }
}

// Calls call(number as a constant) for a number in [1, most].
template <int most, typename Call>
void with_constant(int number, const Call& call) {
    if constexpr (most > 1) {
        if (number < most) return with_constant<most - 1>(number, call);
    }
    call(std::integral_constant<int, most>());
}

// Sums in registers. Plain loops and parameters: through a lambda the compiler would keep them in memory.
template <int rows, int columns>
struct Sums {
    Lanes lanes[rows][columns];

    void clear() {
        for (auto& row : lanes) {
            for (Lanes& sum : row) sum = Lanes::zero();
        }
    }
    void load(const float* from, int stride) {
        for (int row = 0; row < rows; ++row) {
            for (int i = 0; i < columns; ++i) lanes[row][i] = Lanes::load(from + row * stride + i * kLanes);
        }
    }
    void store(float* to, int stride) const {
        for (int row = 0; row < rows; ++row) {
            for (int i = 0; i < columns; ++i) lanes[row][i].store(to + row * stride + i * kLanes);
        }
    }
    // To each row its factor, factors[row * stride], times the columns.
    void add(const float* factors, int stride, const Lanes (&from)[columns]) {
        for (int row = 0; row < rows; ++row) {
            Lanes factor = Lanes::all(factors[row * stride]);
            for (int i = 0; i < columns; ++i) lanes[row][i] = from[i].times_plus(factor, lanes[row][i]);
        }
    }
};

// scores [rows, kSegment] of query [head_size, rows] and as many groups of keys as there are columns, from `group` on.
// Decoding reads memory once and computes little: what is read next is fetched meanwhile, the values included.
template <int rows, int columns, typename Element>
void score(const float* query, const SegmentPlaces<Element>& places, int group, int head_size, float* scores) {
    const Element* const* keys = places.keys + group;
    const Element* const* values = places.values + group;
    Sums<rows, columns> sums;
    sums.clear();
    for (int i = 0; i < head_size; ++i) {
        Lanes key[columns];
        for (int column = 0; column < columns; ++column) {
            key[column] = Lanes::load(keys[column] + i * kLanes);
            prefetch(keys[column + columns] + i * kLanes);
            prefetch(values[column] + i * kLanes);
        }
        sums.add(query + i * rows, 1, key);
    }
    sums.store(scores + group * kLanes, kSegment);
}

inline void soften(float* scores, Range keys, float softcap) {
    for (int i = keys.first; i < keys.end; i += kLanes) {
        (Lanes::all(softcap) * hyperbolic_tangent(Lanes::load(scores + i))).store(scores + i);
    }
}

// scores [rows, kSegment] of the keys `all`, whole groups, become weights: 0 for keys that a row does not see. Writes
// the heads of parts [rows, stride]. The rows take turns: alone, each would wait for its own sum.
template <int rows>
void weigh(float* scores, Range all, const Range* seen, float softcap, float* parts, int stride) {
    constexpr float kHidden = -std::numeric_limits<float>::infinity();
    Lanes largest[rows], sums[rows];
    for (int row = 0; row < rows; ++row) {
        float* of_row = scores + row * kSegment;
        if (softcap != 0.0f) soften(of_row, all, softcap);
        std::fill(of_row + all.first, of_row + std::clamp(seen[row].first, all.first, all.end), kHidden);
        std::fill(of_row + std::clamp(seen[row].end, all.first, all.end), of_row + all.end, kHidden);
        largest[row] = Lanes::all(std::numeric_limits<float>::lowest());
        sums[row] = Lanes::zero();
    }
    for (int i = all.first; i < all.end; i += kLanes) {
        for (int row = 0; row < rows; ++row) largest[row] = largest[row].max(Lanes::load(scores + row * kSegment + i));
    }
    for (Lanes& lanes : largest) lanes = Lanes::all(lanes.largest());
    for (int i = all.first; i < all.end; i += kLanes) {
        for (int row = 0; row < rows; ++row) {
            float* at = scores + row * kSegment + i;
            Lanes weight = exponential(Lanes::load(at) - largest[row]);
            weight.store(at);
            sums[row] = sums[row] + weight;
        }
    }
    for (int row = 0; row < rows; ++row) {
        largest[row].store(parts + row * stride);
        Lanes::all(sums[row].sum()).store(parts + row * stride + kLanes);
    }
}

// Adds columns of the values of `keys`, from the element `first` on, to sums [rows, stride]; weights [rows, kSegment].
template <int rows, int columns, typename Element>
void add_columns(const float* weights, const Element* const* values, Range keys, int first, int head_size, float* to,
                 int stride) {
    Sums<rows, columns> sums;
    sums.load(to, stride);
    for (int key = keys.first; key < keys.end; ++key) {
        const Element* from = values[key / kLanes] + key % kLanes * head_size + first;
        Lanes value[columns];
        for (int column = 0; column < columns; ++column) value[column] = Lanes::load(from + column * kLanes);
        sums.add(weights + key, kSegment, value);
    }
    sums.store(to, stride);
}

// Adds the values of `keys`, all of which all rows see, to parts [rows, part_size].
template <int rows, typename Element>
void add_values(const float* weights, const Element* const* values, Range keys, int head_size, float* parts) {
    if (keys.is_empty()) return;
    constexpr int kColumns = columns_beside(rows), kWidth = kColumns * kLanes;
    for (int first = 0; first < head_size; first += kWidth) {
        with_constant<kColumns>(std::min(kWidth, head_size - first) / kLanes, [&](auto columns) {
            float* to = parts + kPartHead + first;
            add_columns<rows, columns>(weights, values, keys, first, head_size, to, part_size(head_size));
        });
    }
}

// parts [rows, part_size] of rows with ascending positions, each of which sees the keys `seen` of a segment; query
// [head_size, rows]. `scores` is scratch, [rows, kSegment]. Flat: calls of the products would cost a twentieth.
template <int rows, typename Element>
[[gnu::flatten]] void look(const SegmentPlaces<Element>& places, const float* query, const Range* seen, int head_size,
                           float softcap, float* scores, float* parts) {
    constexpr int kColumns = columns_beside(rows);
    int stride = part_size(head_size);
    Range groups = groups_of({seen[0].first, seen[rows - 1].end});
    for (int group = groups.first; group < groups.end; group += kColumns) {
        with_constant<kColumns>(std::min(kColumns, groups.end - group), [&](auto columns) {
            score<rows, columns>(query, places, group, head_size, scores);
        });
    }
    for (int row = 0; row < rows; ++row) clear_part(parts + row * stride, head_size);
    weigh<rows>(scores, {groups.first * kLanes, groups.end * kLanes}, seen, softcap, parts, stride);
    // Values that only some of the rows see are kept from the others: 0 times NaN is not 0.
    Range common = {seen[rows - 1].first, std::max(seen[0].end, seen[rows - 1].first)};
    for (int row = 0; row < rows; ++row) {
        Range before = {seen[row].first, std::min(seen[row].end, common.first)};
        add_values<1>(scores + row * kSegment, places.values, before, head_size, parts + row * stride);
    }
    add_values<rows>(scores, places.values, common, head_size, parts);
    for (int row = 0; row < rows; ++row) {
        Range after = {std::max(seen[row].first, common.end), seen[row].end};
        add_values<1>(scores + row * kSegment, places.values, after, head_size, parts + row * stride);
    }
}

}  // namespace sluicegate
