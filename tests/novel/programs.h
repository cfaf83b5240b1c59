/// The novel programs, one function each; novel.cpp lists them.
#pragma once

#include "forge/language.h"

namespace forge::novel {

LinearAttention two_states();
LinearAttention normalised();
LinearAttention leaky_averages();
LinearAttention running_maximum();
LinearAttention squashed();
LinearAttention shifted_pairs();
LinearAttention shifted_gates();
LinearAttention value_decay();
LinearAttention two_sided();
LinearAttention elementwise_decay();
LinearAttention linear_gate();
LinearAttention last_rows();
LinearAttention closed_loop();
LinearAttention token_shift();
LinearAttention paired_keys();
LinearAttention weighted_tokens();
LinearAttention several_rows();
LinearAttention rotary();
LinearAttention turned_pairs();
LinearAttention two_readings();

}  // namespace forge::novel
