// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples over the network.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;

use dmabuf_dio_stream::{BlockRing, SocketSink, Stream};

use crate::devices::{Devices, FRAME, NoModule, check};

#[test]
fn samples_arrive_over_the_network() {
    let Some(devices) = Devices::get() else { return };
    over_the_network(&devices);
    let _hidden = NoModule::hide();
    over_the_network(&devices);
}

/// A socket that cannot send pages without a copy.
#[test]
fn samples_arrive_at_a_process() {
    let Some(devices) = Devices::get() else { return };
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    ours.set_nonblocking(true).expect("set");
    let receiver = thread::spawn(move || {
        let mut bytes = Vec::new();
        theirs.read_to_end(&mut bytes).expect("all of it");
        bytes
    });
    let (mut source, mut sink) = (devices.source(), SocketSink::new(ours, "the receiver"));
    let ring = BlockRing::new(4, 64 << 10).expect("blocks");
    let summary = Stream::new(&mut source, &mut sink, ring).limit(1 << 20).run().expect("run");
    assert!(summary.sink.contains("copied by the CPU"), "{}", summary.sink);
    drop(sink);
    let bytes = receiver.join().expect("the receiver");
    assert_eq!(check(&bytes, 0), (1 << 20) / FRAME);
}

fn over_the_network(devices: &Devices) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its number");
    for (count, size, limit) in [(2, 16 << 10, 1 << 20), (4, 1 << 20, 20_000_000)] {
        let receiver = {
            let listener = listener.try_clone().expect("another");
            thread::spawn(move || {
                let (mut stream, _) = listener.accept().expect("a connection");
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).expect("all of it");
                bytes
            })
        };
        let mut source = devices.source();
        let socket = TcpStream::connect(address).expect("connected");
        let mut sink = SocketSink::new(socket, "the receiver");
        let ring = BlockRing::new(count, size).expect("blocks");
        let summary = Stream::new(&mut source, &mut sink, ring).limit(limit).run().expect("run");
        println!("{}", summary.sink);
        let bytes = receiver.join().expect("the receiver");
        assert_eq!(bytes.len() as u64, limit / FRAME * FRAME);
        check(&bytes, 0);
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
