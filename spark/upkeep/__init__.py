"""The smaller purges of SymmetricDS: statistics, requests, histories, and rows that are stranded."""
