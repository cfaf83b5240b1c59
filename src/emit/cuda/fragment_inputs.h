/// What a chunk reads in a kernel for warp groups: matrices and spills are prefetched by asynchronous copies while
/// earlier chunks are computed; vectors of tokens, and what follows from them alone, one warp computes ahead.
#pragma once

#include "emit/context.h"
#include "emit/cuda/direction.h"
#include "emit/cuda/launch.h"
#include "emit/transfers.h"

namespace forge::emit {

class FragmentInputs {
  public:
    FragmentInputs(Context& context, Transfers& transfers)
        : c_(context),
          transfers_(transfers),
          out_(context.out),
          plan_(context.plan),
          loop_(context.kernel.graph.loop),
          direction_{context.kernel.graph.reverse},
          fn_(context.fn),
          maps_(mapped_tensors(plan_, context.kernel)),
          arrivals_(has_arrivals(plan_, context.kernel)) {}

    void begin_arrivals();           ///< the barriers of inputs that the hardware copies, and where their boxes begin
    void declare();                  ///< the functions `start` and `make_vectors`
    void declare_rows();             ///< where the walk through chunks begins, and how many rows a chunk has
    void start_first();              ///< issues the copies of the first chunks' inputs
    void start_late(ir::ValueId v);  ///< … of one that arrives late (tile::arrives_late)
    void make_first_vectors();
    /// The buffers of the chunk before are free: a later chunk's inputs may arrive there. Then the next one's vectors.
    void start_later();

    /// The producer: one warp group that issues the copies of all chunks' inputs, and does nothing else.
    void ask_for_all();

    /// Where a buffer lies, given the names of where its stage's matrices and numbers lie.
    [[nodiscard]] std::string place(ir::ValueId v, const char* matrices, const char* numbers) const;
    /// Declares these names, for the stage of this number.
    void declare_stage(const char* matrices, const char* numbers, const char* stage);

    [[nodiscard]] bool is_vector(ir::ValueId v) const;
    [[nodiscard]] std::string half() const;  ///< the element type of operands
    /// A matrix's buffer, as it is read.
    [[nodiscard]] std::string buffer_type(ir::ValueId v) const;
    /// Whether another kernel has left an operand's floats.
    [[nodiscard]] bool is_float_image(ir::ValueId v) const;
    /// Whether an operand has yet to be split into its parts when it has arrived.
    [[nodiscard]] bool arrives_as_floats(ir::ValueId v) const;
    /// `beside`: of so many side by side.
    [[nodiscard]] std::string operand_type(ir::ValueId v, int beside = 1) const;
    /// Declares what tensor copies of a token matrix need; whether there are such copies.
    void declare_map(const std::string& name, int tensor);
    [[nodiscard]] bool is_mapped(int tensor) const;
    /// The map of a tensor's part that begins at `at`.
    [[nodiscard]] std::string map_of(const std::string& name, const Transfers::At& at) const;
    /// To the part of an output that begins at `at`, by the hardware where it can; `rows` and `part` say where that
    /// lies.
    void store_rows(int tensor, const std::string& name, const Transfers::At& at, const std::string& rows,
                    const std::string& part, const std::string& operand);
    [[nodiscard]] bool stores_by_copy() const { return arrivals_ || c_.kernel.tiles.roles; }
    [[nodiscard]] std::string first_row(ir::ValueId v) const;
    /// Where a token tensor's rows of a chunk begin, or of a part of it that begins at `at`, and its strides.
    [[nodiscard]] static std::string token_matrix(const plan::Plan& plan, const std::string& name, int tensor,
                                                  const Transfers::At& at);
    /// How many rows of it the chunk has, of which `rows` is the number of tokens.
    [[nodiscard]] static std::string row_count(const plan::Plan& plan, int tensor, const std::string& rows = "rows");

  private:
    [[nodiscard]] bool through_registers(ir::ValueId v) const;
    [[nodiscard]] bool has_vectors() const;
    [[nodiscard]] std::string token_vector(ir::ValueId v) const;
    [[nodiscard]] std::string arriving(
        ir::ValueId v) const;  ///< where a buffer lies that is filled for chunk number `stage` of those in flight
    /// How many of a matrix's buffers are filled together, of a block's tiles; the operand, and the memory, that they
    /// are then.
    [[nodiscard]] int beside(ir::ValueId v) const;
    [[nodiscard]] std::string arriving_operand(ir::ValueId v) const;
    [[nodiscard]] kernel::Accesses arriving_memory(ir::ValueId v) const;
    [[nodiscard]] const plan::TensorSlot& input_of(int tensor) const;
    [[nodiscard]] const plan::TensorSlot& input_slot(ir::ValueId v) const;
    [[nodiscard]] std::string rows_there(int tensor) const;
    void begin_start();
    void declare_start();
    void declare_copying_start();
    void start_all(const std::vector<ir::ValueId>& values);
    void copy_by_one_thread(const std::vector<ir::ValueId>& spills, const std::vector<ir::ValueId>& mapped);
    void announce(const std::vector<ir::ValueId>& spills, const std::vector<ir::ValueId>& mapped);
    [[nodiscard]] std::int64_t floats_that_arrive(ir::ValueId v) const;
    [[nodiscard]] bool is_copied_spill(ir::ValueId v) const;
    [[nodiscard]] bool is_copied_matrix(ir::ValueId v) const;
    [[nodiscard]] bool is_matrix(ir::ValueId v) const;  ///< an input that is moved into memory
    void start_one(ir::ValueId v);
    [[nodiscard]] bool is_part_of_rows(ir::ValueId v) const;
    void start_spill(ir::ValueId v, const std::string& from);
    void start_matrix(ir::ValueId v, const char* operand_function, kernel::When when = kernel::When::Always);
    void write_matrix(ir::ValueId v, const char* operand_function);
    void start_shifted(ir::ValueId v, const std::string& from, const std::string& rows);
    void copies(ir::ValueId v, kernel::When when, kernel::By by = kernel::By::All);  ///< the lines that come next
    void uses(const char* function, int ahead, const std::string& text);
    void make_next_vectors();
    void declare_vectors();
    void vector(ir::ValueId v);
    [[nodiscard]] std::string number(ir::ValueId v) const;
    [[nodiscard]] std::string next_vector(ir::ValueId v) const;
    [[nodiscard]] std::string later_vector(ir::ValueId v, const std::string& rows) const;

    Context& c_;
    Transfers& transfers_;
    Writer& out_;
    const plan::Plan& plan_;
    plan::Loop loop_;
    Direction direction_;
    const ir::Function& fn_;
    std::vector<int> maps_;  ///< tensors that tensor copies move
    bool arrivals_;          ///< inputs of the task's chunk report to barriers
};

}  // namespace forge::emit
