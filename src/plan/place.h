/// Where each operation runs, by strategy (plan/strategy.h): the kernels of a program. What passes from kernel to
/// kernel becomes Spill results and parameters.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "ir/function.h"
#include "plan/strategy.h"

namespace forge::plan {

struct KernelGraph {
    std::string name;
    Loop loop = Loop::Scan;
    ir::Function fn;
    bool tiled = true;     ///< takes a part of the tiled axis per task; otherwise the whole
    bool reverse = false;  ///< chunks from the last to the first
    bool apart = false;    ///< carries states that have a scan of their own (PlaceRules::early, trailing)
    /// Of summaries: further tasks make the columns of transitions, from those of the identity and zeros for all that
    /// has the tiled axis.
    bool transition_columns = false;
    bool epilogue = false;  ///< makes what of outputs needs all of the axis (PlaceRules::epilogue_axis)
    bool joint = false;     ///< makes what tasks of the next kernel, which take parts of its own axis, have in common
    std::string own_axis = {};  ///< takes a part of this axis per task, whatever others take; empty: it does not
};

/// What every task recomputes, or reads again from the caller's tensors, although a kernel before it could store it.
enum class Again : std::uint8_t {
    Cheap,    ///< inputs and what costs little
    Inputs,   ///< inputs
    Vectors,  ///< inputs, but no matrices that several tiles read
};

struct PlaceRules {
    Again again = Again::Cheap;
    /// Scans of segments join the summaries before them, which must be elementwise; else a kernel does.
    bool joined_at_start = false;
    /// Summaries of segments have tiles for the columns of their transitions (graph::acts_on_columns).
    bool transition_columns = false;
    /// A kernel that makes outputs for all chunks at once is cut along the axis too.
    bool outputs_cut = false;
    /// Products of two inputs that are read anyway are made again rather than read too.
    bool products_again = false;
    /// Where outputs have a kernel of their own, it takes parts of this axis, and one before it, the joint kernel,
    /// makes what sums over the axis, and whatever else lacks it; empty: there is one kernel, of the whole.
    std::string outputs_axis = {};
    /// What of the axis needs no state, but scans or decays along tokens, or dear functions, is made by a kernel of
    /// single chunks and parts of the axis, ahead of the scan.
    bool tiles_ahead = false;
    /// States that a scan of their own carries before all else (graph/early_states.h); what they add is made for all
    /// chunks at once before.
    std::set<std::string> early = {};
    /// States that a scan of their own carries after all others (graph/trailing_states.h), of what is made for all
    /// chunks at once before it.
    std::set<std::string> trailing = {};
    /// Of a backward pass: what reads states before chunks alone is made for all chunks at once, between the scan that
    /// makes them and the one that goes back (graph/trailing_states.h).
    bool between = false;
    /// States have a scan for each group of them that needs no other, or only those before it (graph/state_groups.h),
    /// where outputs have a kernel of their own.
    bool scans_apart = false;
    /// In one pass or segments: a kernel of single chunks makes what of the outputs needs all of this axis
    /// (graph/epilogue.h), behind the scan, which makes the rest by parts of it; empty: there is none.
    std::string epilogue_axis = {};
    /// In one pass: a sequence's segments are tasks of their own, each of which starts from the states that the one
    /// before leaves it.
    bool relay = false;
};

/// The axes that scans can be cut along, in order of preference: all of a program in one kernel, else what its scans
/// do.
std::vector<std::string> cut_axes(const ir::Function& program, Strategy strategy);

/// Whether kernels of single chunks can be cut along it, too.
bool cuts_chunks(const ir::Function& program, const std::string& axis);

/// Whether outputs that have a kernel of their own can be cut along it (PlaceRules::outputs_axis).
bool cuts_outputs(const ir::Function& program, const std::string& axis);

/// A program with saved states (graph/saved_states.h) has a scan forwards, for these, ahead of the one that goes back.
/// Where outputs have a kernel of their own, states to which every chunk only adds are summed at the end.
///
/// `tile_axis`: the axis that scans are cut along, empty if they take it whole. Where they are cut, what does not
/// depend on the axis is made once, in a kernel of its own, and shared.
std::vector<KernelGraph> place(const ir::Function& program, Strategy strategy, const std::string& tile_axis = "",
                               const PlaceRules& rules = {});

}  // namespace forge::plan
