/// The epilogue of a forward program: what its outputs follow from that needs all of the axis along which scans are
/// cut, such as the length of what a state yields. A kernel of single chunks makes it of what the scan leaves, so that
/// the scan can make the rest part by part.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/slice.h"
#include "ir/function.h"

namespace forge::graph {

/// Which values belong to it: what reads states and needs all of the axis, and what follows from that. Nothing if there
/// is no such value, or a state follows from one, or one reads a state itself, or has few digits where what the scan
/// leaves has 16 bits, as differences and exponentials have.
std::optional<std::vector<bool>> epilogue(const ir::Function& program, const std::string& axis);

/// The values outside an epilogue that follow from states and that it reads.
std::vector<ir::ValueId> read_by_epilogue(const ir::Function& program, const std::vector<bool>& epilogue);

/// The axes along which scans can be cut if the epilogue has a kernel of its own, in order of preference.
std::vector<std::string> axes_but_for_epilogue(const ir::Function& program, Sums sums = Sums::Nowhere);

}  // namespace forge::graph
