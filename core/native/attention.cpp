#include "attention.h"

#include "attention_tile.h"

// The keys of a request are cut into segments where their positions are multiples of kSegment. A row's parts of the
// segments are added up in ascending order. So a result depends on the row's position alone, not on the rows beside it
// and not on who computes which segment.
namespace sluicegate {

namespace {

constexpr int kPieceRows = 48;
constexpr int kItemsPerThread = 8;
constexpr size_t kMostKept = 1 << 24;  // floats, of all pieces that are shared out: 64 MiB

// Some tokens of a request and the heads that share a kv head: `num_rows` rows, the heads of a token beside each other.
// All that they see is in `segments`. Where items share those out, the rows' parts are kept from `kept` on,
// [segments, rows, part_size].
struct Piece {
    const Span* span;
    int kv_head, first_token, num_rows;
    Range segments;
    bool is_shared_out;
    size_t kept;

    int num_segments() const { return segments.end - segments.first; }
    int64_t work() const { return (int64_t)num_rows * num_segments(); }
};

struct Item {
    int piece;
    Range segments;
};

// Memory that a thread keeps for the next time.
struct Scratch {
    std::vector<Lanes> lanes;  // which are aligned, as floats are not

    float* take(size_t num_floats) {
        if (lanes.size() * kLanes < num_floats) lanes.resize(num_floats / kLanes + 1);
        return (float*)lanes.data();
    }
};

template <typename Element>
class Attention {
   public:
    Attention(const AttentionShape& shape, const AttentionRule& rule, const LayerCache<Element>& cache,
              const float* query, int64_t query_stride, float* attended)
        : rule_(rule),
          cache_(cache),
          query_(query),
          query_stride_(query_stride),
          attended_(attended),
          num_heads_(shape.num_heads),
          num_kv_heads_(shape.num_kv_heads),
          heads_per_token_(shape.num_heads / shape.num_kv_heads),
          head_size_(shape.head_size),
          block_size_(shape.block_size),
          part_size_(part_size(shape.head_size)) {}

    void run(Pool& pool, const std::vector<Span>& spans) {
        for (const Span& span : spans) cut(span);
        plan(pool.num_threads());
        pool.run((int)items_.size(), [this](int item) { compute(pieces_[items_[item].piece], items_[item].segments); });
        if (items_.size() == pieces_.size()) return;
        pool.run((int)pieces_.size(), [this](int piece) {
            if (pieces_[piece].is_shared_out) gather(pieces_[piece]);
        });
    }

   private:
    void cut(const Span& span) {
        int most = std::max(1, kPieceRows / heads_per_token_);
        for (int first = 0; first < span.num_rows; first += most) {
            int num_tokens = std::min(most, span.num_rows - first), position = span.start + first;
            Range segments = {first_seen(position) / kSegment, (position + num_tokens - 1) / kSegment + 1};
            for (int head = 0; head < num_kv_heads_; ++head) {
                pieces_.push_back({&span, head, first, num_tokens * heads_per_token_, segments, false, 0});
            }
        }
    }

    // One item for each piece, but several for those that would keep the other threads waiting, as long as there is room
    // for the parts: of a long context on many threads they would take gigabytes.
    void plan(int num_threads) {
        int64_t work = 0;
        for (const Piece& piece : pieces_) work += piece.work();
        int64_t most = num_threads > 1 ? work / (num_threads * kItemsPerThread) + 1 : work;
        size_t num_kept = 0;
        for (Piece& piece : pieces_) {
            int at_once = (int)std::clamp<int64_t>(most / piece.num_rows, 1, piece.num_segments());
            const size_t num_own = (size_t)piece.work() * part_size_;
            if (num_kept + num_own > kMostKept) at_once = piece.num_segments();
            if (at_once < piece.num_segments()) {
                piece.is_shared_out = true;
                piece.kept = num_kept;
                num_kept += num_own;
            }
            for (int first = piece.segments.first; first < piece.segments.end; first += at_once) {
                Range segments = {first, std::min(first + at_once, piece.segments.end)};
                items_.push_back({(int)(&piece - pieces_.data()), segments});
            }
        }
        static thread_local Scratch scratch;
        kept_ = scratch.take(num_kept);
    }

    void compute(const Piece& piece, Range segments) const {
        static thread_local Scratch scratch;
        int rows = piece.num_rows;
        float* totals = scratch.take((size_t)rows * (part_size_ + head_size_) + kQueryRows * (part_size_ + kSegment));
        float* tile_parts = totals + rows * part_size_;
        float* scores = tile_parts + kQueryRows * part_size_;
        float* query = scores + kQueryRows * kSegment;
        pack(piece, query);
        for (int row = 0; row < rows; ++row) clear_part(totals + row * part_size_, head_size_);
        for (int segment = segments.first; segment < segments.end; ++segment) {
            SegmentPlaces<Element> places = locate(piece, segment);
            for (Range tile = {0, 0}; tile.first < rows; tile.first = tile.end) {
                tile.end = std::min(tile.first + kQueryRows, rows);
                float* parts = piece.is_shared_out ? kept_parts(piece, segment) + tile.first * part_size_ : tile_parts;
                with_constant<kQueryRows>(tile.end - tile.first, [&](auto tile_rows) {
                    Range sights[tile_rows];
                    for (int row = 0; row < tile_rows; ++row) sights[row] = seen(piece, tile.first + row, segment);
                    const float* of_tile = query + tile.first * head_size_;
                    look<tile_rows>(places, of_tile, sights, head_size_, rule_.softcap, scores, parts);
                });
                if (!piece.is_shared_out) add(piece, segment, tile, parts, totals);
            }
        }
        if (!piece.is_shared_out) finish(piece, totals);
    }

    void gather(const Piece& piece) const {
        static thread_local Scratch scratch;
        float* totals = scratch.take((size_t)piece.num_rows * part_size_);
        for (int row = 0; row < piece.num_rows; ++row) clear_part(totals + row * part_size_, head_size_);
        for (int segment = piece.segments.first; segment < piece.segments.end; ++segment) {
            add(piece, segment, {0, piece.num_rows}, kept_parts(piece, segment), totals);
        }
        finish(piece, totals);
    }

    // Adds the rows' `parts` of a segment to their totals, without those that see nothing of it.
    void add(const Piece& piece, int segment, Range rows, const float* parts, float* totals) const {
        for (int row = rows.first; row < rows.end; ++row, parts += part_size_) {
            if (!seen(piece, row, segment).is_empty()) add_part(totals + row * part_size_, parts, head_size_);
        }
    }

    void finish(const Piece& piece, const float* totals) const {
        for (int row = 0; row < piece.num_rows; ++row, totals += part_size_) {
            int64_t token = (int64_t)token_of(piece, row) * num_heads_ * head_size_;
            store_attended(totals, head_size_, attended_ + token + head_of(piece, row) * head_size_);
        }
    }

    // The query of each tile as [head_size, rows], times `scale` (and what the softcap divides by).
    void pack(const Piece& piece, float* packed) const {
        float scale = rule_.softcap != 0.0f ? rule_.scale / rule_.softcap : rule_.scale;
        for (int first = 0; first < piece.num_rows; first += kQueryRows) {
            int rows = std::min(kQueryRows, piece.num_rows - first);
            for (int row = 0; row < rows; ++row) {
                const float* token = query_ + token_of(piece, first + row) * query_stride_;
                const float* head = token + head_of(piece, first + row) * head_size_;
                for (int i = 0; i < head_size_; ++i) packed[i * rows + row] = head[i] * scale;
            }
            packed += rows * head_size_;
        }
    }

    SegmentPlaces<Element> locate(const Piece& piece, int segment) const {
        SegmentPlaces<Element> places;
        Range groups = groups_of({seen(piece, 0, segment).first, seen(piece, piece.num_rows - 1, segment).end});
        for (int group = groups.first; group < groups.end; ++group) {
            int position = segment * kSegment + group * kLanes;
            int64_t block = (int64_t)piece.span->blocks[position / block_size_] * num_kv_heads_ + piece.kv_head;
            int64_t offset = (block * block_size_ + position % block_size_) * head_size_;
            places.keys[group] = cache_.keys + offset;
            places.values[group] = cache_.values + offset;
        }
        std::fill_n(places.keys + groups.end, kMostColumns, places.keys[groups.end - 1]);
        return places;
    }

    // Of a segment's keys those that the row sees.
    Range seen(const Piece& piece, int row, int segment) const {
        int position = piece.span->start + piece.first_token + row / heads_per_token_, begin = segment * kSegment;
        return {std::clamp(first_seen(position) - begin, 0, kSegment), std::clamp(position + 1 - begin, 0, kSegment)};
    }

    int first_seen(int position) const { return rule_.window ? std::max(0, position + 1 - rule_.window) : 0; }

    int token_of(const Piece& piece, int row) const {
        return piece.span->first_row + piece.first_token + row / heads_per_token_;
    }

    int head_of(const Piece& piece, int row) const { return piece.kv_head * heads_per_token_ + row % heads_per_token_; }

    float* kept_parts(const Piece& piece, int segment) const {
        return kept_ + piece.kept + (size_t)(segment - piece.segments.first) * piece.num_rows * part_size_;
    }

    AttentionRule rule_;
    LayerCache<Element> cache_;
    const float* query_;
    int64_t query_stride_;
    float* attended_;
    int num_heads_, num_kv_heads_, heads_per_token_, head_size_, block_size_, part_size_;
    std::vector<Piece> pieces_;
    std::vector<Item> items_;
    float* kept_ = nullptr;
};

// Puts one token's keys in its lane and its values in its row, for all kv heads.
template <typename Element>
void write_token(const AttentionShape& shape, const LayerCache<Element>& cache, int block, int place, const float* keys,
                 const float* values) {
    int head_size = shape.head_size;
    for (int head = 0; head < shape.num_kv_heads; ++head, keys += head_size, values += head_size) {
        int64_t begin = ((int64_t)block * shape.num_kv_heads + head) * shape.block_size * head_size;
        Element* lane = cache.keys + begin + place / kLanes * kLanes * head_size + place % kLanes;
        Element* row = cache.values + begin + place * head_size;
        for (int i = 0; i < head_size; i += kLanes) {
            Lanes::load(values + i).store(row + i);
            Element key[kLanes];
            Lanes::load(keys + i).store(key);
            for (int j = 0; j < kLanes; ++j) lane[(i + j) * kLanes] = key[j];
        }
    }
}

}  // namespace

template <typename Element>
void write_cache(Pool& pool, const AttentionShape& shape, const LayerCache<Element>& cache,
                 const std::vector<Span>& spans, const float* keys, const float* values, int64_t stride) {
    // An item is the tokens of a request in one block: no two threads write in the same cache line.
    std::vector<Span> items;
    for (Span span : spans) {
        while (span.num_rows > 0) {
            int num_rows = std::min(span.num_rows, shape.block_size - span.start % shape.block_size);
            items.push_back({span.first_row, num_rows, span.start, span.blocks});
            span = {span.first_row + num_rows, span.num_rows - num_rows, span.start + num_rows, span.blocks};
        }
    }
    pool.run((int)items.size(), [&](int number) {
        const Span& item = items[number];
        int block = item.blocks[item.start / shape.block_size];
        for (int i = 0; i < item.num_rows; ++i) {
            int64_t row = (item.first_row + i) * stride;
            write_token(shape, cache, block, item.start % shape.block_size + i, keys + row, values + row);
        }
    });
}

template <typename Element>
void attend(Pool& pool, const AttentionShape& shape, const AttentionRule& rule, const LayerCache<Element>& cache,
            const std::vector<Span>& spans, const float* query, int64_t query_stride, float* attended) {
    Attention<Element>(shape, rule, cache, query, query_stride, attended).run(pool, spans);
}

template void write_cache(Pool&, const AttentionShape&, const LayerCache<float>&, const std::vector<Span>&,
                          const float*, const float*, int64_t);
template void write_cache(Pool&, const AttentionShape&, const LayerCache<uint16_t>&, const std::vector<Span>&,
                          const float*, const float*, int64_t);
template void attend(Pool&, const AttentionShape&, const AttentionRule&, const LayerCache<float>&,
                     const std::vector<Span>&, const float*, int64_t, float*);
template void attend(Pool&, const AttentionShape&, const AttentionRule&, const LayerCache<uint16_t>&,
                     const std::vector<Span>&, const float*, int64_t, float*);

}  // namespace sluicegate
