// The scenario of experiments/bench-lossless.toml in ns-3: one CUBIC flow over 100 Mbit/s and a round trip
// of 50 ms, a drop-tail queue of 1 BDP, segments of 1448 bytes, buffers that never limit.
//
// There are two nodes and one link, so that both simulate the same number of hops. Prints one JSON object: the
// number of data segments that arrived, and the real time of the run.

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

namespace {

constexpr uint32_t kSegment = 1448;           // payload with an MTU of 1500 and timestamps
constexpr uint32_t kBuffer = 64u << 20;       // bytes: far above the BDP
constexpr uint32_t kBdp = 100000000 / 8 / 20; // bytes: 100 Mbit/s times 50 ms
constexpr uint16_t kPort = 5001;

uint64_t g_segments = 0;
uint64_t g_payload = 0;

// Pure ACKs travel in the other direction, so every packet here contains data, except two of the handshake.
void Arrived(Ptr<const Packet> packet) {
    if (packet->GetSize() > kSegment) {
        ++g_segments;
    }
}

void Read(Ptr<const Packet> packet, const Address&) {
    g_payload += packet->GetSize();
}

} // namespace

int main(int argc, char* argv[]) {
    double seconds = 60;
    CommandLine line(__FILE__);
    line.AddValue("seconds", "virtual seconds to simulate", seconds);
    line.Parse(argc, argv);

    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpCubic::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(kSegment));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(kBuffer));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(kBuffer));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));

    NodeContainer nodes;
    nodes.Create(2);
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue("100Mbps"));
    link.SetDeviceAttribute("Mtu", UintegerValue(1500));
    link.SetChannelAttribute("Delay", StringValue("25ms"));
    link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::BYTES, kBdp)));
    NetDeviceContainer devices = link.Install(nodes);

    InternetStackHelper stack;
    stack.Install(nodes);
    Ipv4AddressHelper addresses;
    addresses.SetBase("10.0.0.0", "255.255.255.0");
    Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
    // Assigning an address installs FQ-CoDel above the device; the scenario has only the drop-tail queue.
    TrafficControlHelper().Uninstall(devices);

    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), kPort));
    ApplicationContainer sinks = sink.Install(nodes.Get(1));
    sinks.Get(0)->TraceConnectWithoutContext("Rx", MakeCallback(&Read));
    BulkSendHelper source("ns3::TcpSocketFactory", InetSocketAddress(interfaces.GetAddress(1), kPort));
    source.SetAttribute("MaxBytes", UintegerValue(0));
    source.Install(nodes.Get(0));
    devices.Get(1)->TraceConnectWithoutContext("PhyRxEnd", MakeCallback(&Arrived));

    Simulator::Stop(Seconds(seconds));
    const auto start = std::chrono::steady_clock::now();
    Simulator::Run();
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    const uint64_t events = Simulator::GetEventCount();
    Simulator::Destroy();

    std::cout << "{\"segments\":" << g_segments << ",\"goodput_bps\":"
              << static_cast<uint64_t>(g_payload * 8 / seconds) << ",\"events\":" << events
              << ",\"wall_s\":" << wall.count() << "}" << std::endl;
    return EXIT_SUCCESS;
}
