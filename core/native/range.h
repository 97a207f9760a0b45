#pragma once

namespace sluicegate {

// From `first` up to `end`, which is not in it.
struct Range {
    int first, end;

    bool is_empty() const { return first >= end; }
};

}  // namespace sluicegate
