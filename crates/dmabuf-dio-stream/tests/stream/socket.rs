// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples over the network.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;

use dmabuf_dio_stream::{BlockRing, SocketSink, Stream};

use crate::common::{FRAME, whole};
use crate::devices::{Devices, NoModule, run};

#[test]
fn samples_arrive_over_the_network() {
    let Some(devices) = Devices::get() else { return };
    over_the_network(&devices);
    let _hidden = NoModule::hide();
    over_the_network(&devices);
}

fn all(mut from: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).expect("all of it");
    bytes
}

/// A socket that cannot send pages without a copy.
#[test]
fn samples_arrive_at_a_process() {
    let Some(devices) = Devices::get() else { return };
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    ours.set_nonblocking(true).expect("set");
    let receiver = thread::spawn(move || all(theirs));
    let mut sink = SocketSink::new(ours, "the receiver");
    let summary = run(devices.source(), &mut sink, (4, 64 << 10), 1 << 20);
    assert!(summary.sink.contains("copied by the CPU"), "{}", summary.sink);
    drop(sink);
    let bytes = receiver.join().expect("the receiver");
    assert_eq!(whole(&bytes), (1 << 20) / FRAME);
}

fn over_the_network(devices: &Devices) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its number");
    for (count, size, limit) in [(2, 16 << 10, 1 << 20), (4, 1 << 20, 20_000_000)] {
        let receiver = {
            let listener = listener.try_clone().expect("another");
            thread::spawn(move || all(listener.accept().expect("a connection").0))
        };
        let socket = TcpStream::connect(address).expect("connected");
        let mut sink = SocketSink::new(socket, "the receiver");
        let summary = run(devices.source(), &mut sink, (count, size), limit);
        println!("{}", summary.sink);
        let bytes = receiver.join().expect("the receiver");
        assert_eq!(bytes.len() as u64, limit / FRAME * FRAME);
        whole(&bytes);
    }
}

#[test]
fn closed_receiver_ends_the_stream() {
    let Some(devices) = Devices::get() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let socket = TcpStream::connect(listener.local_addr().expect("its number")).expect("connected");
    let (mut other, _) = listener.accept().expect("a connection");
    let receiver = thread::spawn(move || other.read_exact(&mut vec![0; 1 << 20]));
    let mut source = devices.source();
    let mut sink = SocketSink::new(socket, "the receiver");
    let ring = BlockRing::new(4, 1 << 20).expect("blocks");
    let ended = Stream::new(&mut source, &mut sink, ring).run().expect_err("nobody is there");
    let errno = ended.error.errno().map(dmabuf_dio::Errno::raw);
    assert!(matches!(errno, Some(libc::EPIPE | libc::ECONNRESET)), "{ended}");
    receiver.join().expect("the receiver").expect("the first bytes");
}
