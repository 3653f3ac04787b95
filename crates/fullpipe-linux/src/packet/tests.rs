use super::*;

/// Builds an IPv4 TCP super-packet with timestamps: `payload` bytes in segments of `size` bytes.
fn super_packet(payload: usize, size: u16, flags: u8) -> Vec<u8> {
    let mut read = vec![0; VIRTIO_HEADER + 52 + payload];
    read[0] = NEEDS_CSUM;
    read[1] = 1;
    read[2..4].copy_from_slice(&52u16.to_ne_bytes());
    read[4..6].copy_from_slice(&size.to_ne_bytes());
    let ip = &mut read[VIRTIO_HEADER..];
    ip[0] = 0x45;
    put16(ip, 2, (52 + payload) as u16);
    put16(ip, 4, 0xfffe);
    ip[9] = TCP;
    ip[12..20].copy_from_slice(&[198, 18, 0, 1, 198, 18, 0, 2]);
    put16(ip, 20, 40_000);
    put16(ip, 22, 5_201);
    ip[24..28].copy_from_slice(&0xffff_ff00u32.to_be_bytes());
    ip[32] = 8 << 4;
    ip[33] = flags;
    for (i, byte) in ip[52..].iter_mut().enumerate() {
        *byte = i as u8;
    }
    read
}

fn cut(read: &[u8]) -> (ParsedPacket, Segments) {
    let (virtio, packet) = read.split_at(VIRTIO_HEADER);
    let parsed = parse(packet);
    (parsed, Segments::of(virtio, packet, &parsed))
}

/// Asserts that the IPv4 header checksum is valid. Also asserts that the TCP checksum field contains the sum
/// of the pseudo-header, from which a network card completes the checksum (RFC 1071; the kernel's
/// `CHECKSUM_PARTIAL`).
fn checksums_hold(packet: &[u8], ip_len: usize) {
    assert_eq!(fold(sum(&packet[..20])), 0xffff);
    let tcp_len = (ip_len - 20) as u64;
    assert_eq!(be16(packet, 20 + TCP_CHECKSUM), fold(sum(&packet[12..20]) + u64::from(TCP) + tcp_len));
}

#[test]
fn a_super_packet_is_so_many_wire_segments() {
    let read = super_packet(3_000, 1_448, 0x18);
    let (parsed, segments) = cut(&read);
    assert_eq!((parsed.headers, parsed.kind, parsed.flow.ports), (52, PacketKind::Data, [40_000, 5_201]));
    assert_eq!(segments.count, 3);
    assert_eq!([0, 1, 2].map(|i| segments.payload(i)), [(0, 1_448), (1_448, 1_448), (2_896, 104)]);
}

#[test]
fn what_is_no_super_packet_stays_one_packet() {
    let mut read = super_packet(1_448, 1_448, 0x10);
    assert_eq!(cut(&read).1.count, 1);
    read[1] = GSO_NONE;
    assert_eq!(cut(&read).1.count, 1);
    let plain = &super_packet(1_448, 1_448, 0x10)[VIRTIO_HEADER..];
    assert_eq!(Segments::of(&[], plain, &parse(plain)).count, 1);
    let ack = &super_packet(0, 1_448, 0x10)[VIRTIO_HEADER..];
    assert_eq!(parse(ack).kind, PacketKind::Ack);
    for flags in [0x02, 0x12, 0x11, 0x14] {
        let other = &super_packet(0, 1_448, flags)[VIRTIO_HEADER..];
        assert_eq!(parse(other).kind, PacketKind::Control, "{flags:#x}");
    }
}

/// RFC 3168 section 5, RFC 8200 section 7: an ECN field that is written is read back unchanged, and the IPv4
/// header checksum remains valid.
#[test]
fn marks_are_written_and_read() {
    let mut packet = super_packet(1_448, 1_448, 0x10)[VIRTIO_HEADER..].to_vec();
    packet[1] = 0xb8;
    for ecn in [Ecn::Ect0, Ecn::Ce, Ecn::Ect1, Ecn::NotEct] {
        set_ecn(&mut packet, ecn);
        assert_eq!((parse(&packet).ecn, packet[1]), (ecn, 0xb8 | ecn.bits()));
        assert_eq!(fold(sum(&packet[..20])), u16::MAX, "the header's checksum");
    }
    let mut packet = [0; 60];
    packet[..2].copy_from_slice(&[0x6b, 0x8f]);
    set_ecn(&mut packet, Ecn::Ce);
    assert_eq!((parse(&packet).ecn, packet[0], packet[1]), (Ecn::Ce, 0x6b, 0xbf));
}

#[test]
fn segments_put_together_carry_the_first_ones_number() {
    // FIN, PSH, ACK and CWR are set on the super-packet. After merging, each flag must be where segmentation
    // puts it.
    let read = super_packet(3 * 1_448, 1_448, 0x99);
    let (parsed, segments) = cut(&read);
    let merge = |first, last| {
        let mut to = [0; VIRTIO_HEADER + MOST_HEADERS];
        let len = merged_headers(&read, &parsed, &segments, first, last, &mut to);
        assert_eq!(len, VIRTIO_HEADER + 52);
        let (virtio, packet) = to.split_at(VIRTIO_HEADER);
        let ip_len = usize::from(be16(packet, 2));
        checksums_hold(packet, ip_len);
        let seq = u32::from_be_bytes([packet[24], packet[25], packet[26], packet[27]]);
        (ip_len, be16(packet, 4), seq, packet[33], virtio[1], u16::from_ne_bytes([virtio[4], virtio[5]]))
    };
    // Both the sequence number and the IPv4 identification wrap around here.
    assert_eq!(merge(0, 0), (1_500, 0xfffe, 0xffff_ff00, 0x90, GSO_NONE, 0));
    assert_eq!(merge(1, 2), (52 + 2 * 1_448, 0xffff, 0x4a8, 0x19, 1, 1_448));
    assert_eq!(merge(2, 2), (1_500, 0, 0xa50, 0x19, GSO_NONE, 0));
    assert_eq!(merge(0, 1), (52 + 2 * 1_448, 0xfffe, 0xffff_ff00, 0x90, 1, 1_448));
}

/// In a capture, each segment has the checksum that a network card would have sent, computed over the
/// segment's whole payload.
#[test]
fn a_captured_segment_has_the_checksum_of_its_own_payload() {
    let mut read = super_packet(2 * 1_448 + 101, 1_448, 0x18);
    let (parsed, segments) = cut(&read);
    let split = read.split_at(VIRTIO_HEADER);
    for (index, flags) in [(0, 0x10), (1, 0x10), (2, 0x18)] {
        let mut headers = [0; 96];
        assert_eq!(wire_headers(split, &parsed, &segments, index, &mut headers), 52);
        let (offset, len) = segments.payload(index);
        assert_eq!((be16(&headers, 2) as usize, headers[33]), (52 + len, flags));
        let payload = &split.1[52..][offset..offset + len];
        let pseudo = sum(&headers[12..20]) + u64::from(TCP) + (32 + len) as u64;
        assert_eq!(fold(pseudo + sum(&headers[20..52]) + sum(payload)), 0xffff, "segment {index}");
    }
    // A complete checksum remains unchanged, and the headers are truncated to the size of the buffer.
    read[0] = 0;
    let split = read.split_at(VIRTIO_HEADER);
    let mut headers = [0; 40];
    assert_eq!(wire_headers(split, &parsed, &segments, 0, &mut headers), 40);
    assert_eq!(headers, split.1[..40]);
}

/// No packet from a namespace can make the link panic.
#[test]
fn odd_packets_are_control_packets_of_no_flow() {
    for odd in [&[][..], &[0x45], &[0x45; 19], &[0x60; 39], &[0x4f; 24], &[0x00; 64]] {
        let parsed = parse(odd);
        assert_eq!((parsed.kind, parsed.headers), (PacketKind::Control, odd.len()), "{odd:?}");
        let virtio = [NEEDS_CSUM, 1, 0, 0, 9, 9, 0, 0, 0, 0];
        let segments = Segments::of(&virtio, odd, &parsed);
        assert_eq!(segments.count, 1);
        assert_eq!(wire_headers((&virtio, odd), &parsed, &segments, 0, &mut [0; 96]), odd.len());
    }
    // In this packet, the TCP header claims to be longer than the packet.
    let mut short = super_packet(0, 0, 0x10)[VIRTIO_HEADER..][..44].to_vec();
    short[32] = 0xf0;
    let parsed = parse(&short);
    assert_eq!(parsed.headers, 44);
    let cut = [NEEDS_CSUM; VIRTIO_HEADER];
    let segments = Segments::of(&cut, &short, &parsed);
    assert_eq!(wire_headers((&cut, &short), &parsed, &segments, 0, &mut [0; 96]), 44);
}
