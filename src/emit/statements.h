/// The lines of statements that do nothing but synchronise: one each, from their fields.
#pragma once

#include <string>

#include "kernel/kernel.h"

namespace forge::emit {

/// Whether the statement needs no text of its own.
bool is_synchronising(const kernel::Statement& statement);
std::string line_of(const kernel::Statement& statement);

// Such statements.

kernel::Statement group_barrier();
kernel::Statement fence();
/// `text`: what the source says instead of the number.
kernel::Statement copy_wait(int pending, const std::string& text = "");
kernel::Statement commit();
/// The same, or a wait, of copies that report to barriers (kernel::Kernel::arrivals), if `hardware`.
kernel::Statement arrivals_in(bool hardware, kernel::Statement statement);
kernel::Statement stores_read();
/// `turn`: the variable that says where the walk through the channel's buffers stands.
kernel::Statement wait_for(const std::string& channel, kernel::Side side, const std::string& turn);
kernel::Statement arrive_at(const std::string& channel, kernel::Side side, const std::string& turn);
/// Several in one line.
kernel::Statement line_of_all(std::vector<kernel::Statement> statements);
/// Makes what all threads wrote to shared memory visible to all threads and to the matrix units; `publish();`.
kernel::Statement publish();

}  // namespace forge::emit
