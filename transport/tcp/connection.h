// TcpConnection: the connected socket between an endpoint and one of its peers. Writes frames from
// a queue of sends, reads frames through a FrameReceiver, never blocks.
//
// One thread at a time, that of the endpoint. Internal to the TCP transport.
#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/descriptor.h"
#include "transport/inbox.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/frame_receiver.h"

namespace dlaunch {

class TcpConnection {
 public:
  /// What a step of reading has come to.
  enum class Event {
    kIdle,      // nothing there, or everything that was there has been read
    kMore,      // there may be more to read at once
    kGoodbye,   // the peer has left in order
    kAbort,     // the peer has failed: notice()
    kClosed,    // the connection ended: closed_because()
    kMalformed  // fault(): bytes or a message that must not be
  };

  /// How far what was written last has come.
  enum class Delivery {
    kSent,    // if it is lost on its way it is sent again, unless the connection is reset
    kArrived  // the peer's system has it
  };

  /// `socket` is connected. `context` and `staging`, into which reads go that have no other place,
  /// are shared by the connections of an endpoint and outlive them.
  TcpConnection(Descriptor socket, int peer, EndpointContext& context,
                std::span<std::byte> staging);

  int peer() const { return peer_; }
  int descriptor() const { return socket_.get(); }
  FrameReceiver& receiver() { return receiver_; }
  const FrameReceiver& receiver() const { return receiver_; }

  /// Reads once from the socket.
  Event read();
  const FailureNotice& notice() const { return *receiver_.notice(); }
  const Status& fault() const { return fault_; }
  const std::string& closed_because() const { return closed_because_; }

  /// Queues a send and writes what the socket takes. A failed write is not reported here: reading
  /// on tells why, because the peer's last words are read before the end of the stream.
  void send(Transfer& transfer);
  /// Writes what the socket takes; true if the queue is empty then.
  bool flush();
  bool has_sends() const { return first_ < queue_.size(); }
  /// True after a write has failed: the connection is over.
  bool write_failed() const { return write_error_ != 0; }
  /// Why a write has failed, if the fault is not that of a peer that is gone (which reading on
  /// tells), or ok: what was to be sent cannot be read, the system has no memory for it.
  Status write_fault() const;
  /// True while a posted receive or a queued send waits for this connection.
  bool awaited() const { return receiver_.has_receives() || has_sends(); }

  /// Ends all its transfers with `why`, and the stream if one of them is being written.
  void fail_transfers(const Status& why);

  /// Ends the stream behind the message that is being written, if there is one, and `frame`. Writes
  /// what the socket takes; part() writes the rest.
  void write_last(std::vector<std::byte> frame);
  /// Goes on ending the stream, and drops what the peer still sends: a system that gets what nobody
  /// reads any more resets the connection, and throws away what the peer's system has not yet
  /// taken. True once everything has come as far as `until` says, or nobody is there to take it.
  bool part(Delivery until);
  /// For a connection that parts: true while the peer's system has not yet got what sends that are
  /// done have left to this one, and may still take it.
  bool owes() const;
  /// Ends the stream and closes. Never blocks.
  void close();
  bool is_open() const { return socket_.is_open(); }

  // For the endpoint.
  bool awaits_room = false;         // it watches for room to write
  std::uint32_t watched = EPOLLIN;  // what for in all

 private:
  struct Outgoing {
    Transfer* transfer;
    EncodedHeader header;
    std::size_t written;  // of header and payload together
  };

  void keep_known() const;
  ssize_t read_into(std::span<std::byte> destination);
  bool is_writing() const { return has_sends() && queue_[first_].written > 0; }
  bool write_some(Outgoing& outgoing);
  void complete(Transfer& transfer);
  void pop_sent();
  void end_stream();
  bool drain();

  Descriptor socket_;
  int peer_;
  EndpointContext& context_;
  std::span<std::byte> staging_;
  FrameReceiver receiver_;
  Status fault_;
  std::string closed_because_;

  std::vector<Outgoing> queue_;  // sends in order; those before first_ are done
  std::size_t first_ = 0;
  std::vector<std::byte> last_;  // what is yet to be written before the stream ends
  int write_error_ = 0;          // errno of the write that failed
  bool peer_parts_ = false;      // or is gone: it takes nothing any more
  std::uint64_t written_ = 0;    // bytes, of the whole stream
  std::uint64_t done_ = 0;       // up to there all sends are done
};

}  // namespace dlaunch
