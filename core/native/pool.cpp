#include "pool.h"

#include <immintrin.h>
#include <sched.h>

#include <stdexcept>

namespace sluicegate {

namespace {

constexpr int kFieldBits = 20;
constexpr uint64_t kFieldMask = (1u << kFieldBits) - 1;
constexpr int kMostItems = 1 << (kFieldBits - 1);  // and one more for each thread that finds them taken
constexpr int kSpins = 2000;  // some 50 microseconds; then whoever else wants the core may have it

int num_items_of(uint64_t ticket) { return (int)(ticket >> kFieldBits & kFieldMask); }
int next_of(uint64_t ticket) { return (int)(ticket & kFieldMask); }

class Patience {
   public:
    void wait() {
        if (++num_waits_ < kSpins) {
            _mm_pause();
        } else {
            sched_yield();
        }
    }

   private:
    int num_waits_ = 0;
};

}  // namespace

void Pool::set_num_threads(int count) {
    std::lock_guard<std::mutex> turn(turn_);
    if (count == num_threads()) return;
    stop();
    start(count);
}

void Pool::start(int num_threads) {
    is_awake_ = 0;
    is_ending_ = false;
    for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this] { serve(); });
}

void Pool::stop() {
    is_ending_ = true;
    is_awake_ = 1;
    is_awake_.notify_all();
    for (auto& worker : workers_) worker.join();
    workers_.clear();
}

Pool::Session::Session(Pool& pool) : pool_(pool), turn_(pool.turn_) {
    pool_.is_awake_.store(1);
    pool_.is_awake_.notify_all();
}

Pool::Session::~Session() { pool_.is_awake_.store(0); }

void Pool::share(int num_items, Call call, const void* work) {
    if (num_items >= kMostItems) throw std::length_error("too many items for a pool of threads");
    call_ = call;
    work_ = work;
    num_left_.store(num_items, std::memory_order_relaxed);
    uint64_t number = (ticket_.load(std::memory_order_relaxed) >> 2 * kFieldBits) + 1;
    ticket_.store(number << 2 * kFieldBits | (uint64_t)num_items << kFieldBits, std::memory_order_release);
    take_all();
    for (Patience patience; num_left_.load(std::memory_order_acquire) > 0;) patience.wait();
}

// Whether there was an item to take. Who has taken one may read call_ and work_, and take another of the same work: that
// stays until it is told that all are computed.
bool Pool::take_all() noexcept {
    int num_taken = 0;
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    while (next_of(ticket) < num_items_of(ticket)) {
        ticket = ticket_.fetch_add(1, std::memory_order_acq_rel);
        if (next_of(ticket) >= num_items_of(ticket)) break;
        call_(work_, next_of(ticket));
        ++num_taken;
    }
    if (num_taken > 0) num_left_.fetch_sub(num_taken, std::memory_order_acq_rel);
    return num_taken > 0;
}

void Pool::serve() {
    while (!is_ending_.load(std::memory_order_relaxed)) {
        for (Patience patience; is_awake_.load(std::memory_order_relaxed) && !is_ending_.load(std::memory_order_relaxed);) {
            if (take_all()) {
                patience = Patience();
            } else {
                patience.wait();
            }
        }
        if (!is_ending_.load()) is_awake_.wait(0);
    }
}

}  // namespace sluicegate
