package sluicegate

import pb "sluicegate/v1"

// FromText is a request to continue text; set its other fields as needed.
func FromText(text string) *pb.GenerateRequest {
	return &pb.GenerateRequest{Prompt: &pb.GenerateRequest_Text{Text: text}}
}

// FromChat is a request for the next turn of a conversation; set its other fields as needed.
func FromChat(messages ...*pb.ChatMessage) *pb.GenerateRequest {
	return &pb.GenerateRequest{Prompt: &pb.GenerateRequest_Chat{Chat: &pb.Chat{Messages: messages}}}
}

// User is what the user says in a conversation.
func User(content string) *pb.ChatMessage {
	return &pb.ChatMessage{Role: "user", Content: content}
}
