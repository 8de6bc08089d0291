module dunlin/peer

go 1.26
