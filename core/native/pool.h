// The threads that share the work of a step.
//
//   caller     run(items) ─▶ take, compute, take … ─▶ wait until all are computed
//   worker     spin (in a session) or sleep ─▶ take, compute, take …
//
// Items are taken one by one: a thread that the system holds up delays only the item it has, and a worker that comes
// late finds the work done. Within a session workers spin between two pieces of work, since those follow each other
// within microseconds; outside of one they sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace sluicegate {

class Pool {
   public:
    explicit Pool(int num_threads) { start(num_threads); }
    ~Pool() { stop(); }
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int num_threads() const { return (int)workers_.size() + 1; }
    // Once nobody computes.
    void set_num_threads(int count);

    // Calls work(item) for each item in [0, num_items), on any thread, and returns when all calls have. An exception, which
    // is memory that there is none of, ends the process: other threads would go on with what the caller has left. Raises
    // std::length_error for 2^19 items or more.
    template <typename Work>
    void run(int num_items, const Work& work) {
        if (num_items == 1 || workers_.empty()) {
            for (int item = 0; item < num_items; ++item) work(item);
            return;
        }
        if (num_items > 0) share(num_items, [](const void* it, int item) { (*static_cast<const Work*>(it))(item); }, &work);
    }

    // While one lives the workers are awake, and other callers wait for their turn.
    class Session {
       public:
        explicit Session(Pool& pool);
        ~Session();

       private:
        Pool& pool_;
        std::lock_guard<std::mutex> turn_;
    };

   private:
    using Call = void (*)(const void* work, int item);

    void start(int num_threads);
    void stop();
    void share(int num_items, Call call, const void* work);
    bool take_all() noexcept;
    void serve();

    std::mutex turn_;
    std::vector<std::thread> workers_;
    // What threads contend for lies on cache lines of its own. Of the work at hand: a number that changes with each (24
    // bits), how many items it has, and the next to take (20 bits each).
    alignas(64) std::atomic<uint64_t> ticket_{0};
    alignas(64) std::atomic<int> num_left_{0};
    alignas(64) Call call_ = nullptr;
    const void* work_ = nullptr;
    alignas(64) std::atomic<int> is_awake_{0};
    std::atomic<bool> is_ending_{false};
};

}  // namespace sluicegate
